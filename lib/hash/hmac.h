#pragma once

// Proof that somebody knows a secret.

#include <string>
#include <string_view>

namespace sdp {

/// HMAC (RFC 2104) with SHA-256 (FIPS 180-4), as 64 lower-case hexadecimal digits.
std::string hmac_sha256(std::string_view key, std::string_view message);

/// Whether the texts are equal. The time depends on their lengths only, so it does not tell how much of a
/// guess is right.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace sdp
