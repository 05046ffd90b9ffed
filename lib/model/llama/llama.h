#pragma once

#include <vector>

#include "model/llama/llama_spec.h"
#include "model/model.h"
#include "model/transformer.h"

namespace sdp {

// Letters in the comments: B batch, T tokens, W width of the residual stream, D elements per head, V
// vocabulary; of a part: H hidden neurons, N heads, N_kv key and value heads.

/// transformers.LlamaForCausalLM (model/layouts.h): pre-norm blocks of causal attention with rotary position
/// embeddings and a SwiGLU MLP. Each of them is a branch: 2 i is block i's attention, 2 i + 1 its MLP.
class Llama : public Model {
 public:
  Llama(const LlamaSpec& spec, const DropRates& drop);
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override { branches_.at(branch).reset(); }
  at::Tensor features(const at::Tensor& tokens, const ForwardMode& mode) override;
  Head head() const override { return {.weight = head_, .bias = {}}; }

 private:
  struct AttentionPart {
    at::Tensor q, k, v;  // [N D, W], [N_kv D, W], [N_kv D, W]
    at::Tensor o;        // [W, N D]
  };
  struct MlpPart {
    at::Tensor gate, up;  // [H, W]
    at::Tensor down;      // [W, H]
  };
  struct Branch {
    at::Tensor norm;  // [W]
    std::vector<AttentionPart> attention;
    std::vector<MlpPart> mlp;
  };
  /// Output [B, T, W] of a branch that has parts.
  at::Tensor branch_forward(const Branch& branch, const at::Tensor& x) const;
  at::Tensor attention_forward(const Branch& branch, const at::Tensor& x) const;
  at::Tensor mlp_forward(const Branch& branch, const at::Tensor& x) const;
  /// Makes the rotary table if there is none yet for this number of tokens, type and device.
  void prepare_rotary(const at::Tensor& x);

  const LlamaSpec spec_;
  const DropRates drop_;
  const int64_t head_size_;
  at::Tensor embedding_, norm_, head_;  // [V, W], [W], [V, W]
  RotaryTable rotary_;
  std::vector<std::optional<Branch>> branches_;
};

}  // namespace sdp
