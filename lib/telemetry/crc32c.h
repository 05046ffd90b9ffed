#pragma once

#include <cstdint>
#include <string_view>

namespace sdp {

/// CRC-32C (Castagnoli) as RFC 3720, appendix B.4: reflected polynomial 0x82F63B78, all bits inverted before
/// and after.
uint32_t crc32c(std::string_view data);

}  // namespace sdp
