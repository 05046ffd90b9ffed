#pragma once

// The operators of ops/ops.h, with the same signatures, as compositions of ATen's: how a CPU computes them,
// and what device kernels are tested against.

#include "ops/ops.h"

namespace sdp::ops::composed {

decltype(ops::rms_norm) rms_norm;
decltype(ops::rms_norm_backward) rms_norm_backward;
decltype(ops::swiglu) swiglu;
decltype(ops::swiglu_backward) swiglu_backward;
decltype(ops::rotate) rotate;
decltype(ops::cross_entropy_) cross_entropy_;

}  // namespace sdp::ops::composed
