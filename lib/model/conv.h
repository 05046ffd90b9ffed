#pragma once

// Convolution and ReLU that save only what their gradients need.

#include <ATen/core/Tensor.h>

namespace sdp {

/// Convolution without bias, x [B, C_in, S, S], weight [C_out, C_in, k, k]. If the weight is frozen, only the
/// weight is saved for the backward pass; ATen's convolution saves x as well.
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding);

/// relu(x), which saves one bit per element for the backward pass. It saves memory if no following operation
/// saves the result.
at::Tensor relu_keeping_bits(const at::Tensor& x);

}  // namespace sdp
