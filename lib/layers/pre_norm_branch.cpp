#include "layers/pre_norm_branch.h"

#include <ATen/ATen.h>

namespace sdp {
namespace {

/// May overwrite x.
at::Tensor activate(Activation activation, at::Tensor x) {
  if (activation == Activation::kRelu) return x.relu_();
  return at::gelu(x, activation == Activation::kTanhGelu ? "tanh" : "none");
}

}  // namespace

PreNormBranch PreNormBranch::bind(const TensorSource& source, int branch, const std::string& block,
                                  const Names& names, const Style& style) {
  const auto name = [&](std::string_view layer) { return block + std::string(layer); };
  PreNormBranch bound{.style = style,
                      .norm = LayerNorm::bind(source, name(names.norm), style.norm_eps),
                      .output_bias = source.parameter(name(names.out) + ".bias"),
                      .parts = {}};
  for (int part = 0; part < source.parts(branch); ++part)
    bound.parts.push_back({.in_weight = source.parameter(name(names.in_weight), part),
                           .in_bias = source.parameter(name(names.in_bias), part),
                           .out_weight = source.parameter(name(names.out) + ".weight", part)});
  return bound;
}

at::Tensor PreNormBranch::linear(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias) const {
  if (!style.has_transposed_weights) return at::linear(x, weight, bias);
  const at::Tensor rows = x.flatten(0, -2);
  const at::Tensor result = bias.defined() ? at::addmm(bias, rows, weight) : rows.mm(weight);
  return result.unflatten(0, x.sizes().slice(0, x.dim() - 1));
}

at::Tensor PreNormBranch::in(const Part& part, const at::Tensor& x) const {
  return linear(x, part.in_weight, part.in_bias);
}

at::Tensor PreNormBranch::out(const std::function<at::Tensor(size_t part)>& hidden) const {
  at::Tensor sum;
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& weight = parts[i].out_weight;
    sum = sum.defined() ? sum + linear(hidden(i), weight) : linear(hidden(i), weight, output_bias);
  }
  return sum;
}

at::Tensor PreNormBranch::mlp(const at::Tensor& x) const {
  const bool norm_is_frozen = !norm.weight.requires_grad();
  const at::Tensor normed = norm_is_frozen ? x : norm(x);
  return out([&](size_t i) {
    const Part& part = parts[i];
    const auto hidden = [this, &part, norm_is_frozen](const at::Tensor& input, bool) {
      return activate(style.activation, in(part, norm_is_frozen ? norm(input) : input));
    };
    return part.in_weight.requires_grad() ? hidden(normed, false) : recomputed(hidden, normed);
  });
}

at::Tensor PreNormBranch::output(const at::Tensor& x, const Recipe& forward, const ForwardMode& mode) const {
  return parts.empty() ? output_bias.expand_as(x) : run_branch(forward, x, mode);
}

}  // namespace sdp
