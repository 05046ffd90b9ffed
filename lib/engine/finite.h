#pragma once

// Checks whether values are finite: one reduction per tensor, without a temporary of the tensor's size.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace sdp {

/// Index of the first tensor that contains a NaN or an infinity, or nullopt if there is none. The tensors may
/// have any shapes and floating-point types, and are on one device, for which the host waits once.
std::optional<size_t> first_not_finite(const std::vector<at::Tensor>& tensors);

/// Whether a single tensor is finite.
bool is_finite(const at::Tensor& tensor);

}  // namespace sdp
