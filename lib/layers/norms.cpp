#include "layers/norms.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace sdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// LayerNorm computed in the parameters' type, which is wider than x's. It saves x in x's own type, whereas
/// ATen's LayerNorm of a widened x would save the widened copy.
class WideLayerNorm : public torch::autograd::Function<WideLayerNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, double eps) {
    const auto [y, mean, rstd] =
        at::native_layer_norm(x.to(weight.scalar_type()), weight.sizes(), weight, bias, eps);
    context->save_for_backward({x, mean, rstd, weight, bias});
    return y.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[3];
    const auto [of_x, of_weight, of_bias] = at::native_layer_norm_backward(
        gradients[0].to(weight.scalar_type()), x.to(weight.scalar_type()), weight.sizes(), saved[1], saved[2],
        weight, saved[4],
        {context->needs_input_grad(0), context->needs_input_grad(1), context->needs_input_grad(2)});
    return {of_x.defined() ? of_x.to(x.scalar_type()) : of_x, of_weight, of_bias, at::Tensor()};
  }
};

}  // namespace

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

LayerNorm LayerNorm::bind(const TensorSource& source, const std::string& name, double eps) {
  return {.weight = source.parameter(name + ".weight"), .bias = source.parameter(name + ".bias"), .eps = eps};
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  if (weight.scalar_type() != x.scalar_type()) return WideLayerNorm::apply(x, weight, bias, eps);
  return at::layer_norm(x, weight.sizes(), weight, bias, eps);
}

}  // namespace sdp
