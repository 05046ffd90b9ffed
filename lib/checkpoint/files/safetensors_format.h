#pragma once

// Constants shared by the reader and the writer of safetensors.

#include <cstdint>
#include <string_view>

namespace sdp {

inline constexpr int64_t kLengthBytes = 8;               ///< of the header length at the start of the file
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  ///< the reference implementation's limit
inline constexpr std::string_view kMetadataKey = "__metadata__";

}  // namespace sdp
