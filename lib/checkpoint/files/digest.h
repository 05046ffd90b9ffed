#pragma once

// Sizes and hashes of files, to tell them apart.

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/on_progress.h"

namespace sdp {

/// Size and XXH3-128 of a file (hash/hash.h).
struct FileDigest {
  int64_t bytes = 0;
  std::string xxh3_128;

  bool operator==(const FileDigest&) const = default;
};

/// Reads the file once, through a small buffer. Progress is reported in bytes. Throws DataError.
FileDigest digest_file(const std::filesystem::path& path, const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
