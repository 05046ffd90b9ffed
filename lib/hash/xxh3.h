#pragma once

// XXH3 with 128 bits, as 32 lower-case hexadecimal digits, as `xxhsum -H128` prints it: detects damage to
// files and differences between specs and plans, not tampering.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace sdp {

/// Of data that comes in pieces.
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

}  // namespace sdp
