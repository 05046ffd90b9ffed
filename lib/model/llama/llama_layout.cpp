#include <cmath>

#include "model/layout_builder.h"
#include "model/llama/llama_spec.h"
#include "model/logit_rows.h"

// Saved activations are those of a CPU run. On a GPU in bf16, grouped-query attention saves k and v with
// their own number of heads; here they are repeated to the number of heads of q. The rotary tables exist once
// per model, not once per sample.

namespace sdp {
namespace {

constexpr int64_t kNeuronGranularity = 8;
constexpr double kInitDeviation = 0.02;  // transformers' initializer_range
constexpr double kStatisticBytes = 4;    // fp32; 8 in fp64 runs, which are only for tests

struct Sizes {
  int64_t tokens, width, hidden_width, heads, kv_heads, head_size;
  double out_deviation;  ///< initial deviation of the layers that write to the residual stream

  StreamElements stream() const { return {tokens * width, tokens * width}; }
};

LinearOptions without_bias(double deviation) {
  return {.bias = false, .init = Initializer{Initializer::Kind::kNormal, deviation}};
}

/// Activations outside the parts of a branch: its norm saves its input and one statistic per token.
void save_norm(BranchActivations& saved, const Sizes& s) {
  const ActivationSize norm{.elements = static_cast<double>(s.tokens * s.width),
                            .bytes = static_cast<double>(s.tokens) * kStatisticBytes};
  saved.with_owned = saved.block_frozen = saved.neuron_frozen = norm;
  saved.with_owned.elements += norm.elements;  // its output, the input of the owned layers
  saved.checkpointed.elements = norm.elements;
}

void add_attention(LayoutBuilder& builder, const std::string& block_name, int block, const Sizes& s) {
  const std::string name = block_name + ".self_attn";
  const int64_t group =
      s.heads / s.kv_heads * s.head_size;  // elements of the heads that share a key/value head
  const int branch = builder.begin_branch(name, block, s.stream(), s.kv_heads, /*granularity=*/1);
  const SliceRule group_rows{.dim = 0, .elements_per_hidden = group};
  const SliceRule head_rows{.dim = 0, .elements_per_hidden = s.head_size};
  const SliceRule group_columns{.dim = 1, .elements_per_hidden = group};
  const int64_t q_width = s.heads * s.head_size;
  const int64_t kv_width = s.kv_heads * s.head_size;
  const LayerPlace q_heads{.branch = branch, .output = group_rows};
  const LayerPlace kv_heads{.branch = branch, .output = head_rows};
  const LayerPlace whole{.branch = branch};
  builder.rms_norm(block_name + ".input_layernorm", s.width, s.tokens, whole);
  const LinearOptions in = without_bias(kInitDeviation);
  builder.linear(name + ".q_proj", s.width, q_width, s.tokens, q_heads, in);
  builder.linear(name + ".k_proj", s.width, kv_width, s.tokens, kv_heads, in);
  builder.linear(name + ".v_proj", s.width, kv_width, s.tokens, kv_heads, in);
  const auto rotary = [&](int64_t width) {
    return Operation{.kind = OperationKind::kRotary, .rows = s.tokens, .in = width, .head_size = s.head_size};
  };
  builder.operation(rotary(q_width), q_heads);
  builder.operation(rotary(kv_width), kv_heads);
  builder.operation({.kind = OperationKind::kCausalAttention,
                     .rows = s.tokens,
                     .in = q_width,
                     .span = s.tokens,
                     .head_size = s.head_size},
                    q_heads);
  builder.linear(name + ".o_proj", q_width, s.width, s.tokens,
                 {.branch = branch, .input = group_columns, .scales_branch_output = true},
                 without_bias(s.out_deviation));
  builder.operation({.kind = OperationKind::kAdd, .rows = s.tokens, .in = s.width}, whole);
  BranchActivations& saved = builder.saved(branch);
  save_norm(saved, s);
  saved.owned.elements = 4.0 * static_cast<double>(s.tokens * q_width);  // q, k, v, o_proj's input
  saved.owned.bytes = kStatisticBytes * static_cast<double>(s.tokens * s.heads);
  saved.frozen = saved.owned;
  // Gradients of the branch's output and its input; gradients of q, k, v and o_proj's input.
  saved.workspace.elements = 2 * static_cast<double>(s.tokens * s.width);
  saved.workspace_of_slices.elements = 4.0 * static_cast<double>(s.tokens * q_width);
}

void add_mlp(LayoutBuilder& builder, const std::string& block_name, int block, const Sizes& s) {
  const std::string name = block_name + ".mlp";
  const int branch = builder.begin_branch(name, block, s.stream(), s.hidden_width, kNeuronGranularity);
  const LayerPlace hidden{.branch = branch, .output = kRows, .recomputed_if_frozen = true};
  builder.rms_norm(block_name + ".post_attention_layernorm", s.width, s.tokens,
                   {.branch = branch, .recomputed_if_frozen = true});
  for (const char* layer : {".gate_proj", ".up_proj"})
    builder.linear(name + layer, s.width, s.hidden_width, s.tokens, hidden, without_bias(kInitDeviation));
  builder.operation({.kind = OperationKind::kSwiGlu, .rows = s.tokens, .in = s.hidden_width}, hidden);
  builder.linear(name + ".down_proj", s.hidden_width, s.width, s.tokens,
                 {.branch = branch, .input = kColumns, .scales_branch_output = true},
                 without_bias(s.out_deviation));
  builder.operation({.kind = OperationKind::kAdd, .rows = s.tokens, .in = s.width}, {.branch = branch});
  BranchActivations& saved = builder.saved(branch);
  save_norm(saved, s);
  saved.owned.elements = 3.0 * static_cast<double>(s.tokens * s.hidden_width);  // gate, up, their product
  saved.block_frozen.bytes = 0;  // the norm is recomputed with the rest
  saved.neuron_frozen.elements += static_cast<double>(s.tokens * s.width);  // the norm's output
  // Gradients of the branch's output and its input; gradients of gate, up and their product.
  saved.workspace.elements = 2 * static_cast<double>(s.tokens * s.width);
  saved.workspace_of_slices.elements = saved.owned.elements;
}

/// Adds the final norm, and the head with the cross-entropy, which saves a gradient instead of logits
/// (model/linear_cross_entropy.h).
void add_head(LayoutBuilder& builder, const LlamaSpec& spec, const Sizes& s) {
  builder.rms_norm("model.norm", s.width, s.tokens, {});
  if (!spec.tied_embeddings)
    builder.parameter("lm_head.weight", {*spec.vocab_size, s.width}, ParameterRole::kWeight,
                      {Initializer::Kind::kNormal, kInitDeviation}, {}, {});
  builder.operation(
      {.kind = OperationKind::kLinearCrossEntropy, .rows = s.tokens, .in = s.width, .out = *spec.vocab_size},
      {});
  builder.saved() +=
      {.elements = 2.0 * static_cast<double>(s.tokens * s.width),  // the norm's input and that gradient
       .bytes = kStatisticBytes * static_cast<double>(s.tokens)};
}

}  // namespace

ModelLayout layout_of(const LlamaSpec& spec, int64_t sequence_length) {
  const Sizes s{.tokens = sequence_length,
                .width = *spec.width,
                .hidden_width = *spec.hidden_width,
                .heads = *spec.heads,
                .kv_heads = *spec.kv_heads,
                .head_size = *spec.head_size,
                // As in GPT-2 (Radford et al. 2019): each of 2 depth branches adds a share of the variance.
                .out_deviation = kInitDeviation / std::sqrt(2.0 * static_cast<double>(*spec.depth))};
  LayoutBuilder builder;
  builder.parameter("model.embed_tokens.weight", {*spec.vocab_size, s.width}, ParameterRole::kWeight,
                    {Initializer::Kind::kNormal, kInitDeviation}, {}, {});
  builder.operation({.kind = OperationKind::kEmbedding,
                     .rows = s.tokens,
                     .in = s.width,
                     .out = *spec.vocab_size,
                     .input_needs_gradient = false},
                    {});
  builder.saved().bytes +=
      static_cast<double>(sizeof(int64_t)) * static_cast<double>(s.tokens);  // the tokens
  for (int block = 0; block < static_cast<int>(*spec.depth); ++block) {
    const std::string name = "model.layers." + std::to_string(block);
    add_attention(builder, name, block, s);
    add_mlp(builder, name, block, s);
  }
  add_head(builder, spec, s);
  ModelLayout layout = builder.take();
  layout.loss = {
      .head = layout.parameter_index(spec.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"),
      .logits = static_cast<double>(s.tokens * *spec.vocab_size),
      .logits_at_once = static_cast<double>(logit_rows_at_a_time(*spec.vocab_size) * *spec.vocab_size)};
  return layout;
}

}  // namespace sdp
