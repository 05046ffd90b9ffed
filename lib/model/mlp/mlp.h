#pragma once

#include <vector>

#include "model/mlp/mlp_spec.h"
#include "model/model.h"

namespace sdp {

// Letters in the comments: B batch, I input elements, W width of the residual stream, H hidden neurons of a
// part.

/// Residual MLP (model/layouts.h): stem, pre-norm blocks, head.
class Mlp : public Model {
 public:
  Mlp(const MlpSpec& spec, const DropRates& drop)
      : spec_(spec), drop_(drop), branches_(static_cast<size_t>(*spec.depth)) {}
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override { branches_.at(branch).reset(); }
  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override;
  Head head() const override { return {.weight = head_weight_, .bias = head_bias_}; }

 private:
  struct Part {
    at::Tensor up_weight, up_bias;  // [H, W], [H]
    at::Tensor down_weight;         // [W, H]
  };
  struct Branch {
    at::Tensor norm_weight, norm_bias;  // [W]
    at::Tensor down_bias;               // [W]
    std::vector<Part> parts;
  };
  at::Tensor branch_forward(const Branch& branch, const at::Tensor& x) const;

  const MlpSpec spec_;
  const DropRates drop_;
  at::Tensor stem_weight_, stem_bias_;  // [W, I], [W]
  at::Tensor head_weight_, head_bias_;  // [num_classes, W], [num_classes]
  std::vector<std::optional<Branch>> branches_;
};

}  // namespace sdp
