#pragma once

#include <string>

namespace sdp::fuzz {

/// Sets the header's length so that the header ends with the last brace.
inline std::string repair_safetensors(std::string bytes) {
  const size_t end = bytes.rfind('}');
  if (end == std::string::npos || end < 8) return bytes;
  for (size_t byte = 0; byte < 8; ++byte)
    bytes[byte] = static_cast<char>((end + 1 - 8) >> (8 * byte));
  return bytes;
}

}  // namespace sdp::fuzz
