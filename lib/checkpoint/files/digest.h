#pragma once

// XXH3 with 128 bits: detects damage to files and differences between plans, not tampering.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "io/on_progress.h"

struct XXH3_state_s;

namespace sdp {

/// Size and XXH3-128 of a file; the hash as 32 lower-case hexadecimal digits, as `xxhsum -H128` prints it.
struct FileDigest {
  int64_t bytes = 0;
  std::string xxh3_128;

  bool operator==(const FileDigest&) const = default;
};

/// XXH3-128 of data that comes in pieces.
class Xxh3 {
 public:
  Xxh3();
  void update(std::span<const std::byte> data);
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::string xxh3_128(std::string_view text);

/// Reads the file once, through a small buffer. Progress is told in bytes. Throws DataError.
FileDigest digest_file(const std::filesystem::path& path, const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
