#pragma once

namespace sdp {

inline constexpr const char* kProgramVersion = SDP_VERSION;

}  // namespace sdp
