#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace sdp::fuzz {

/// Offsets in a header: name, size (twice as often as the others), type.
constexpr std::array<size_t, 4> kTarFields = {0, 124, 124, 156};

/// Corrects the checksum of everything at the place of a header.
inline std::string repair_tar(std::string bytes) {
  for (size_t block = 0; block + 512 <= bytes.size(); block += 512) {
    if (bytes.compare(block + 257, 5, "ustar") != 0) continue;
    unsigned sum = 0;
    for (size_t at = 0; at < 512; ++at)
      sum += at >= 148 && at < 156 ? ' ' : static_cast<unsigned char>(bytes[block + at]);
    char octal[8];
    std::snprintf(octal, sizeof octal, "%06o", sum);
    bytes.replace(block + 148, 8, std::string(octal, 6) + '\0' + ' ');
  }
  return bytes;
}

}  // namespace sdp::fuzz
