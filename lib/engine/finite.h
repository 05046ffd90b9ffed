#pragma once

// Whether values are finite: one reduction per tensor, without a temporary of its size.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace sdp {

/// Index of the first tensor with a NaN or an infinity. Any shapes and floating-point types, on one device;
/// the host waits for it once.
std::optional<size_t> first_not_finite(const std::vector<at::Tensor>& tensors);

/// The same of one.
bool is_finite(const at::Tensor& tensor);

}  // namespace sdp
