#include "layers/model.h"

#include <ATen/ATen.h>

namespace sdp {

at::Tensor Model::forward(const at::Tensor& input, const ForwardMode& mode) {
  const at::Tensor x = features(input, mode);
  const auto [weight, bias] = head();
  return at::linear(x, weight, bias);
}

}  // namespace sdp
