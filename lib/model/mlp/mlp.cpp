#include "model/mlp/mlp.h"

#include <ATen/ATen.h>

#include "model/branch.h"

namespace sdp {

void Mlp::bind_shared(const TensorSource& source) {
  stem_weight_ = source.parameter("stem.weight");
  stem_bias_ = source.parameter("stem.bias");
  head_weight_ = source.parameter("head.weight");
  head_bias_ = source.parameter("head.bias");
}

void Mlp::bind_branch(int branch, const TensorSource& source) {
  const std::string name = "blocks." + std::to_string(branch);
  Branch bound{.norm_weight = source.parameter(name + ".norm.weight"),
               .norm_bias = source.parameter(name + ".norm.bias"),
               .down_bias = source.parameter(name + ".mlp.3.bias"),
               .parts = {}};
  for (int part = 0; part < source.parts(branch); ++part)
    bound.parts.push_back({.up_weight = source.parameter(name + ".mlp.0.weight", part),
                           .up_bias = source.parameter(name + ".mlp.0.bias", part),
                           .down_weight = source.parameter(name + ".mlp.3.weight", part)});
  branches_.at(branch) = std::move(bound);
}

at::Tensor Mlp::branch_forward(const Branch& branch, const at::Tensor& x) const {
  const auto norm = [&](const at::Tensor& input) {
    // The norm computes in the type of its parameters, which may be wider than that of the weights.
    return at::layer_norm(input.to(branch.norm_weight.scalar_type()), {*spec_.width}, branch.norm_weight,
                          branch.norm_bias)
        .to(input.scalar_type());
  };
  const bool norm_is_frozen = !branch.norm_weight.requires_grad();
  const at::Tensor normed = norm_is_frozen ? x : norm(x);  // [B, W]
  at::Tensor sum = branch.down_bias;
  for (const Part& part : branch.parts) {
    const auto hidden = [part, norm, norm_is_frozen](const at::Tensor& input, bool) {
      return at::linear(norm_is_frozen ? norm(input) : input, part.up_weight, part.up_bias).relu_();
    };
    const at::Tensor h =
        part.up_weight.requires_grad() ? hidden(normed, false) : recomputed(hidden, normed);  // [B, H]
    sum = sum + at::linear(h, part.down_weight);                                              // [B, W]
  }
  return sum;
}

at::Tensor Mlp::features(const at::Tensor& images, const ForwardMode& mode) {
  at::Tensor x = at::linear(images.flatten(1), stem_weight_, stem_bias_);  // [B, W]
  const int branches = static_cast<int>(branches_.size());
  for (int i = 0; i < branches; ++i) {
    if (mode.before_branch) mode.before_branch(i);
    if (branches_[i]) {
      const Branch& branch = *branches_[i];
      const auto run = [this, &branch](const at::Tensor& input, bool) {
        return branch_forward(branch, input);
      };
      const at::Tensor out = branch.parts.empty() ? branch.down_bias.expand_as(x) : run_branch(run, x, mode);
      x = x + drop_randomly(out, drop_, i, branches, mode);
    }
    if (mode.after_branch) mode.after_branch(i);
  }
  return x;
}

std::unique_ptr<Model> make_model(const MlpSpec& spec, const DropRates& drop) {
  return std::make_unique<Mlp>(spec, drop);
}

}  // namespace sdp
