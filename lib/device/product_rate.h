#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/TensorOptions.h>

#include <functional>

namespace sdp {

/// A run that takes at least this long is measured precisely enough.
inline constexpr double kEnoughSeconds = 0.02;

/// Seconds of the fastest of a few runs after one warm-up run.
double fastest_s(at::Device device, const std::function<void()>& run);

/// FLOP/s of a square matrix product of random numbers (with equal ones a GPU draws less power and is
/// faster): the smallest side, a power of two, whose product takes long enough.
double product_rate(const at::TensorOptions& options);

}  // namespace sdp
