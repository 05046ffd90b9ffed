#include <ATen/ATen.h>

#include "layers/pre_norm_blocks.h"
#include "model/gpt2_spec.h"

namespace sdp {
namespace {

constexpr PreNormStyle kStyle{
    .blocks = "transformer.h.",
    .attention = {"ln_1", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj"},
    .mlp = {"ln_2", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj"},
    .is_causal = true,
    .branches = {.norm_eps = kGpt2NormEps,
                 .activation = Activation::kTanhGelu,
                 .has_transposed_weights = true},
};

/// transformers.GPT2LMHeadModel.
class Gpt2 : public Model {
 public:
  Gpt2(const Gpt2Spec& spec, const DropRates& drop)
      : blocks_(kStyle, *spec.depth, *spec.width / *spec.heads, drop) {}

  void bind_shared(const TensorSource& source) override {
    embedding_ = source.parameter("transformer.wte.weight");
    positions_ = source.parameter("transformer.wpe.weight");
    norm_ = LayerNorm::bind(source, "transformer.ln_f", kGpt2NormEps);
  }
  void bind_branch(int branch, const TensorSource& source) override { blocks_.bind(branch, source); }
  void unbind_branch(int branch) override { blocks_.unbind(branch); }

  at::Tensor features(const at::Tensor& tokens, const ForwardMode& mode) override {
    const at::Tensor x = at::embedding(embedding_, tokens) + positions_.narrow(0, 0, tokens.size(1));
    return norm_(blocks_.forward(x, mode));  // [B, T, W]
  }
  Head head() const override { return {.weight = embedding_, .bias = {}}; }

 private:
  PreNormBlocks blocks_;
  at::Tensor embedding_, positions_;  // [vocab_size, W], [context_length, W]
  LayerNorm norm_;
};

}  // namespace

std::unique_ptr<Model> make_model(const Gpt2Spec& spec, const DropRates& drop) {
  return std::make_unique<Gpt2>(spec, drop);
}

}  // namespace sdp
