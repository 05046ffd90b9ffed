#include "layers/model.h"

#include <ATen/ATen.h>

namespace sdp {

at::Tensor Head::logits(const at::Tensor& features) const {
  return weight.defined() ? at::linear(features, weight, bias) : features;
}

int64_t Head::outputs(const at::Tensor& features) const {
  return weight.defined() ? weight.size(0) : features.size(-1);
}

at::Tensor Model::forward(const at::Tensor& input, const ForwardMode& mode) {
  return head().logits(features(input, mode));
}

}  // namespace sdp
