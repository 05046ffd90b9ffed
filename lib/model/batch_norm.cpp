#include "model/batch_norm.h"

#include <ATen/ATen.h>

namespace sdp {

BatchNorm BatchNorm::bind(const TensorSource& source, const std::string& name, int part) {
  return {source.parameter(name + ".weight", part), source.parameter(name + ".bias", part),
          source.buffer(name + ".running_mean", part), source.buffer(name + ".running_var", part)};
}

at::Tensor BatchNorm::forward(const at::Tensor& x, const ForwardMode& mode, Statistics statistics) const {
  constexpr double kEps = 1e-5;
  const bool leave = mode.training && statistics == Statistics::kLeave;
  return at::batch_norm(x, weight, bias, leave ? at::Tensor() : running_mean,
                        leave ? at::Tensor() : running_var, mode.training, mode.batch_norm_momentum, kEps,
                        /*cudnn_enabled=*/true);
}

}  // namespace sdp
