#pragma once

#include <vector>

#include "model/gpt2/gpt2_spec.h"
#include "model/model.h"

namespace sdp {

// Letters in the comments: B batch, T tokens, P positions, W width of the residual stream, D elements per
// head, V vocabulary; of a part: H hidden neurons, N heads.

/// transformers.GPT2LMHeadModel: pre-norm blocks of causal attention and an MLP with the tanh approximation
/// of GELU. Each of them is a branch: 2 i is block i's attention, 2 i + 1 its MLP.
class Gpt2 : public Model {
 public:
  Gpt2(const Gpt2Spec& spec, const DropRates& drop);
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override { branches_.at(branch).reset(); }
  at::Tensor features(const at::Tensor& tokens, const ForwardMode& mode) override;
  Head head() const override { return {.weight = embedding_, .bias = {}}; }

 private:
  struct Norm {
    at::Tensor weight, bias;  // [W], possibly of a wider type than the activations
  };
  /// In an attention: the layer for q, k and v of its heads, and the output projection. In an MLP: its two
  /// layers.
  struct Part {
    at::Tensor in_weight, in_bias;  // [W, 3 N D], [3 N D]; or [W, H], [H]
    at::Tensor out_weight;          // [N D, W] or [H, W]
  };
  struct Branch {
    Norm norm;
    at::Tensor output_bias;  // [W]
    std::vector<Part> parts;
  };

  static Norm bind_norm(const TensorSource& source, const std::string& name);
  /// x [B, T, W] -> the branch's output, of x's shape, or [W] if there are no parts.
  at::Tensor attention_forward(const Branch& branch, const at::Tensor& x) const;
  at::Tensor mlp_forward(const Branch& branch, const at::Tensor& x) const;
  at::Tensor add_branch(int index, const at::Tensor& x, const ForwardMode& mode) const;

  const DropRates drop_;
  const int64_t head_size_;
  at::Tensor embedding_, positions_;  // [V, W], [P, W]
  Norm norm_;
  std::vector<std::optional<Branch>> branches_;
};

}  // namespace sdp
