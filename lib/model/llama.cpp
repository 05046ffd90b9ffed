#include <ATen/ATen.h>

#include <numbers>

#include "layers/branch.h"
#include "layers/transformer.h"
#include "model/llama_spec.h"

namespace sdp {
namespace {

// Letters in the comments: B batch, T tokens, W width of the residual stream, D elements per head, V
// vocabulary; of a part: H hidden neurons, N heads, N_kv key and value heads.

/// The rotary frequencies of LLaMA 3.1: _compute_llama3_parameters of transformers.
at::Tensor scaled(const at::Tensor& frequencies, const RopeScaling& scaling) {
  const at::Tensor turns =  // in the original context
      frequencies * (static_cast<double>(scaling.original_context) / (2 * std::numbers::pi));
  const at::Tensor kept =
      ((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)).clamp(0, 1);
  return frequencies * (kept + (1 - kept) / scaling.factor);
}

/// transformers.LlamaForCausalLM (model/model_spec.h): pre-norm blocks of causal attention with rotary
/// position embeddings and a SwiGLU MLP. Each of them is a branch: 2 i is block i's attention, 2 i + 1 its
/// MLP.
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

Llama::Llama(const LlamaSpec& spec, const DropRates& drop)
    : spec_(spec),
      drop_(drop),
      head_size_(*spec.head_size),
      branches_(static_cast<size_t>(2 * *spec.depth)) {}

void Llama::bind_shared(const TensorSource& source) {
  embedding_ = source.parameter("model.embed_tokens.weight");
  norm_ = source.parameter("model.norm.weight");
  head_ = spec_.tied_embeddings ? embedding_ : source.parameter("lm_head.weight");
}

void Llama::bind_branch(int branch, const TensorSource& source) {
  const std::string block = "model.layers." + std::to_string(branch / 2);
  const bool is_attention = branch % 2 == 0;
  Branch bound;
  bound.norm =
      source.parameter(block + (is_attention ? ".input_layernorm" : ".post_attention_layernorm") + ".weight");
  for (int part = 0; part < source.parts(branch); ++part) {
    const auto weight = [&](const char* layer) { return source.parameter(block + layer + ".weight", part); };
    if (is_attention)
      bound.attention.push_back({.q = weight(".self_attn.q_proj"),
                                 .k = weight(".self_attn.k_proj"),
                                 .v = weight(".self_attn.v_proj"),
                                 .o = weight(".self_attn.o_proj")});
    else
      bound.mlp.push_back(
          {.gate = weight(".mlp.gate_proj"), .up = weight(".mlp.up_proj"), .down = weight(".mlp.down_proj")});
  }
  branches_.at(branch) = std::move(bound);
}

at::Tensor Llama::attention_forward(const Branch& branch, const at::Tensor& x) const {
  const at::Tensor normed = rms_norm(x, branch.norm, spec_.norm_eps);  // [B, T, W]
  at::Tensor sum;
  for (const AttentionPart& part : branch.attention) {
    const std::vector<at::Tensor> projected = linears(normed, {part.q, part.k, part.v});
    const auto heads = [&](const at::Tensor& projection) {
      return projection.unflatten(-1, {-1, head_size_});  // [B, T, N, D]
    };
    // With frozen weights, the products before and after the attention save nothing, and the attention saves
    // only what its own gradient needs.
    const at::Tensor mixed =
        attention(rotate(heads(projected[0]), rotary_), rotate(heads(projected[1]), rotary_),
                  heads(projected[2]), /*is_causal=*/true);  // [B, T, N D]
    const at::Tensor out = at::linear(mixed, part.o);
    sum = sum.defined() ? sum + out : out;
  }
  return sum;
}

at::Tensor Llama::mlp_forward(const Branch& branch, const at::Tensor& x) const {
  const auto norm = [weight = branch.norm, eps = spec_.norm_eps](const at::Tensor& input) {
    return rms_norm(input, weight, eps);
  };
  const bool norm_is_frozen = !branch.norm.requires_grad();
  const at::Tensor normed = norm_is_frozen ? x : norm(x);  // [B, T, W]
  at::Tensor sum;
  for (const MlpPart& part : branch.mlp) {
    const auto hidden = [part, norm, norm_is_frozen](const at::Tensor& input, bool) {
      const at::Tensor y = norm_is_frozen ? norm(input) : input;
      const std::vector<at::Tensor> projected = linears(y, {part.gate, part.up});
      return swiglu(projected[0], projected[1]);
    };
    const at::Tensor h =
        part.gate.requires_grad() ? hidden(normed, false) : recomputed(hidden, normed);  // [B, T, H]
    const at::Tensor out = at::linear(h, part.down);
    sum = sum.defined() ? sum + out : out;
  }
  return sum;
}

at::Tensor Llama::branch_forward(const Branch& branch, const at::Tensor& x) const {
  return branch.attention.empty() ? mlp_forward(branch, x) : attention_forward(branch, x);
}

void Llama::prepare_rotary(const at::Tensor& x) {
  const bool fits = rotary_.cos.defined() && rotary_.cos.size(0) == x.size(1) &&
                    rotary_.cos.device() == x.device() &&
                    (rotary_.cos.scalar_type() == at::kDouble) == (x.scalar_type() == at::kDouble);
  if (fits) return;
  at::Tensor frequencies = rotary_frequencies(head_size_, spec_.rope_theta, x);
  if (spec_.rope_scaling.factor != 1) frequencies = scaled(frequencies, spec_.rope_scaling);
  rotary_ = rotary_table(x.size(1), frequencies);
}

at::Tensor Llama::features(const at::Tensor& tokens, const ForwardMode& mode) {
  at::Tensor x = at::embedding(embedding_, tokens);  // [B, T, W]
  prepare_rotary(x);
  const int branches = static_cast<int>(branches_.size());
  for (int i = 0; i < branches; ++i) {
    x = add_branch(i, x, mode, [&]() -> at::Tensor {
      const std::optional<Branch>& branch = branches_[i];
      if (!branch || (branch->attention.empty() && branch->mlp.empty())) return {};
      const auto run = [this, i](const at::Tensor& input, bool) {
        return branch_forward(*branches_[i], input);
      };
      return drop_randomly(run_branch(run, x, mode), drop_, i, branches, mode);
    });
  }
  return rms_norm(x, norm_, spec_.norm_eps);
}

}  // namespace

std::unique_ptr<Model> make_model(const LlamaSpec& spec, const DropRates& drop) {
  return std::make_unique<Llama>(spec, drop);
}

}  // namespace sdp
