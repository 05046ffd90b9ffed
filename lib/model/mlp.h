#pragma once

#include <vector>

#include "model/model.h"

namespace sdp {

// Letters in the comments: B batch, I input elements, W width of the residual stream, H hidden width.

/// Residual MLP (model/layouts.h): stem, pre-norm blocks, head.
class Mlp : public Model {
 public:
  explicit Mlp(const ModelSpec& spec) : width_(spec.width), branches_(spec.depth) {}
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override { branches_.at(branch).reset(); }
  at::Tensor forward(const at::Tensor& images, const ForwardMode& mode) override;

 private:
  struct Branch {
    at::Tensor norm_weight, norm_bias;  // [W]
    at::Tensor up_weight, up_bias;      // [H, W], [H]
    at::Tensor down_weight, down_bias;  // [W, H], [W]
  };
  int64_t width_;
  at::Tensor stem_weight_, stem_bias_;  // [W, I], [W]
  at::Tensor head_weight_, head_bias_;  // [num_classes, W], [num_classes]
  std::vector<std::unique_ptr<Branch>> branches_;
};

}  // namespace sdp
