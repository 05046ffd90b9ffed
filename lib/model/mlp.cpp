#include "model/mlp.h"

#include <ATen/ATen.h>

namespace sdp {

void Mlp::bind_shared(const TensorSource& source) {
  stem_weight_ = source.parameter("stem.weight");
  stem_bias_ = source.parameter("stem.bias");
  head_weight_ = source.parameter("head.weight");
  head_bias_ = source.parameter("head.bias");
}

void Mlp::bind_branch(int branch, const TensorSource& source) {
  const std::string name = "blocks." + std::to_string(branch);
  branches_.at(branch) = std::make_unique<Branch>(Branch{
      .norm_weight = source.parameter(name + ".norm.weight"),
      .norm_bias = source.parameter(name + ".norm.bias"),
      .up_weight = source.parameter(name + ".mlp.0.weight"),
      .up_bias = source.parameter(name + ".mlp.0.bias"),
      .down_weight = source.parameter(name + ".mlp.3.weight"),
      .down_bias = source.parameter(name + ".mlp.3.bias"),
  });
}

at::Tensor Mlp::forward(const at::Tensor& images, const ForwardMode& mode) {
  at::Tensor x = at::linear(images.flatten(1), stem_weight_, stem_bias_);  // [B, W]
  for (size_t i = 0; i < branches_.size(); ++i) {
    if (mode.before_branch) mode.before_branch(static_cast<int>(i));
    if (branches_[i]) {
      const Branch& branch = *branches_[i];
      // Normalised in the weights' type; LayerNorm's parameters may be kept in a wider one.
      const at::Tensor normed = at::layer_norm(x.to(branch.norm_weight.scalar_type()), {width_},
                                               branch.norm_weight, branch.norm_bias)
                                    .to(x.scalar_type());
      const at::Tensor hidden = at::relu(at::linear(normed, branch.up_weight, branch.up_bias));  // [B, H]
      x = x + at::linear(hidden, branch.down_weight, branch.down_bias);
    }
    if (mode.after_branch) mode.after_branch(static_cast<int>(i));
  }
  return at::linear(x, head_weight_, head_bias_);
}

}  // namespace sdp
