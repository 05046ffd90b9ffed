#include "engine/finite.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace sdp {

at::Tensor are_finite(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> extremes;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) {
      extremes.push_back(at::zeros({2}, tensor.options().dtype(at::kDouble)));
      continue;
    }
    // aminmax returns NaN for both extremes if the tensor contains a NaN.
    const auto [least, largest] = at::aminmax(tensor);
    extremes.push_back(at::stack({least, largest}).to(at::kDouble));
  }
  return at::isfinite(at::stack(extremes)).all(1);
}

std::optional<size_t> first_not_finite(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return std::nullopt;
  const at::Tensor finite = are_finite(tensors).cpu();
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!finite.const_data_ptr<bool>()[i]) return i;
  return std::nullopt;
}

bool is_finite(const at::Tensor& tensor) {
  return !first_not_finite({tensor});
}

}  // namespace sdp
