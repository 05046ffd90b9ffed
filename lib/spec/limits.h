#pragma once

// Limits shared by keys of several sections. They are far above the values used in training, yet low enough
// that no product of these numbers overflows 64 bits. experiment/step_limits.h checks the products.

namespace sdp {

inline constexpr double kMostWidth = 1 << 15;
inline constexpr double kMostImageSize = 1 << 12;
inline constexpr double kMostSteps = 1 << 30;
inline constexpr double kMostEvalSamples = 1e12;

}  // namespace sdp
