#pragma once

// Two hashes, as lower-case hexadecimal digits: XXH3 with 128 bits detects damage to files and differences
// between specs and plans, not tampering; HMAC-SHA-256 proves that somebody knows a secret.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace sdp {

/// XXH3 of data that comes in pieces, as `xxhsum -H128` prints it.
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

/// HMAC (RFC 2104) with SHA-256 (FIPS 180-4), as 64 lower-case hexadecimal digits.
std::string hmac_sha256(std::string_view key, std::string_view message);

/// Whether the texts are equal. The time depends on their lengths only, so it does not tell how much of a
/// guess is right.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace sdp
