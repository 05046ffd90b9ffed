#pragma once

// Convolution and ReLU that keep what their gradients need and no more.

#include <ATen/core/Tensor.h>

namespace sdp {

/// Convolution without bias, x [B, C_in, S, S], weight [C_out, C_in, k, k]. With a frozen weight only the
/// weight stays until the backward pass; ATen's own keeps x as well.
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding);

/// relu(x), of which one bit an element stays until the backward pass: for a result that nobody else keeps.
at::Tensor relu_keeping_bits(const at::Tensor& x);

}  // namespace sdp
