#pragma once

// Checks whether values are finite: one reduction per tensor, without a temporary of the tensor's size.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace sdp {

/// By tensor, whether all of its elements are finite: [tensors.size()] of bool on their device. There must be
/// a tensor; the tensors may have any shapes and floating-point types.
at::Tensor are_finite(const std::vector<at::Tensor>& tensors);

/// Index of the first tensor that contains a NaN or an infinity, or nullopt if there is none. The tensors are
/// on one device, for which the host waits once.
std::optional<size_t> first_not_finite(const std::vector<at::Tensor>& tensors);

/// Whether a single tensor is finite.
bool is_finite(const at::Tensor& tensor);

}  // namespace sdp
