#pragma once

// Convolution and ReLU that save only what their gradients need, and the memory format of their maps.

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include "layers/norms.h"

namespace sdp {

/// The memory format in which convolutions of this type are fast: channels_last, as weights are stored
/// (subnet/layout.h), but on a GPU only in bf16, for tensor cores. cuDNN has no fast kernels in it for fp32
/// without TF32, and none for fp64. On a CPU, ATen sums BatchNorm's statistics in the maps' type if they are
/// in channels_last (of 65,536 values in fp32: a relative error of 1e-5), and otherwise in fp64.
at::MemoryFormat map_format(at::ScalarType type, bool on_gpu);

/// Convolution without bias, x [B, C_in, S, S] in the map format, weight [C_out, C_in, k, k] in
/// channels_last. If the weight is frozen, only the weight is saved for the backward pass; ATen's convolution
/// saves x as well. Where oneDNN's kernels for a stride write beyond their buffers (few channels), x without
/// the elements that the stride skips is computed with stride 1: the same rule on every device.
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding);

/// relu(x) in place, which saves one bit per element for the backward pass. It saves memory if no following
/// operation saves the result.
at::Tensor relu_keeping_bits(const at::Tensor& x);

}  // namespace sdp
