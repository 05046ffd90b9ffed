#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sdp {

/// Decodes a JPEG of exactly height x width pixels to [3, height, width] RGB; grey is converted.
/// Throws DataError with the reason alone (no file name) when it has another size or colour space, does not
/// decode, or decodes with a warning such as missing data.
std::vector<uint8_t> decode_jpeg(std::span<const uint8_t> jpeg, int64_t height, int64_t width);

}  // namespace sdp
