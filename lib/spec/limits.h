#pragma once

// Limits that keys of several sections have. They are far above what is trained, and so low that no product
// of such numbers overflows 64 bits: experiment/size_limits.h has what is checked of their products.

namespace sdp {

inline constexpr double kMostWidth = 1 << 15;
inline constexpr double kMostImageSize = 1 << 12;
inline constexpr double kMostSteps = 1 << 30;
inline constexpr double kMostEvalSamples = 1e12;

}  // namespace sdp
