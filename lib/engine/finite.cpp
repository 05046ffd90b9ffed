#include "engine/finite.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace sdp {

std::optional<size_t> first_not_finite(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  // aminmax returns NaN for both extremes if the tensor contains a NaN.
  std::vector<at::Tensor> extremes;
  std::vector<size_t> indices;  // of the tensors that the extremes belong to
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].numel() == 0) continue;
    const auto [least, largest] = at::aminmax(tensors[i]);
    extremes.push_back(least.to(at::kDouble));
    extremes.push_back(largest.to(at::kDouble));
    indices.push_back(i);
  }
  if (extremes.empty()) return std::nullopt;
  const at::Tensor finite = at::isfinite(at::stack(extremes)).cpu();
  const bool* const flags = finite.const_data_ptr<bool>();
  for (size_t i = 0; i < indices.size(); ++i)
    if (!flags[2 * i] || !flags[2 * i + 1]) return indices[i];
  return std::nullopt;
}

bool is_finite(const at::Tensor& tensor) {
  return !first_not_finite({tensor});
}

}  // namespace sdp
