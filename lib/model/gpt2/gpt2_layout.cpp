#include <cmath>

#include "model/gpt2/gpt2_spec.h"
#include "model/layout_builder.h"
#include "model/logit_rows.h"

namespace sdp {
namespace {

constexpr int64_t kNeuronGranularity = 8;
constexpr double kInitDeviation = 0.02;   // transformers' initializer_range
constexpr double kBytesOfStatistics = 8;  // mean and 1/deviation of a LayerNorm's token, fp32
constexpr double kBytesOfSum = 4;         // logarithm of a softmax's denominator, fp32

struct Sizes {
  int64_t tokens, width, hidden_width, heads, head_size;
  double out_deviation;  ///< initial deviation of the layers that write to the residual stream

  double stream() const { return static_cast<double>(tokens * width); }
  double hidden() const { return static_cast<double>(tokens * hidden_width); }
  ActivationSize norm_input() const {
    return {.elements = stream(), .bytes = kBytesOfStatistics * static_cast<double>(tokens)};
  }
};

/// transformers' Conv1D. Its weight is [in, out], so the output dimension of a LayerPlace is dimension 1.
void conv1d(LayoutBuilder& builder, const std::string& name, int64_t in, int64_t out, int64_t tokens,
            const LayerPlace& place, double deviation) {
  builder.parameter(name + ".weight", {in, out}, ParameterRole::kWeight,
                    {Initializer::Kind::kNormal, deviation}, place,
                    place.output ? place.output : place.input);
  std::optional<SliceRule> of_bias = place.output;
  if (of_bias) of_bias->dim = 0;
  builder.parameter(name + ".bias", {out}, ParameterRole::kBias, {}, place, of_bias);
  builder.operation({.kind = OperationKind::kLinear, .rows = tokens, .in = in, .out = out, .bias = true},
                    place);
}

void add_attention(LayoutBuilder& builder, const std::string& block_name, int block, const Sizes& s) {
  const std::string name = block_name + ".attn";
  const auto stream = s.tokens * s.width;
  const int branch = builder.begin_branch(name, block, {stream, stream}, s.heads, /*granularity=*/1);
  const LayerPlace whole{.branch = branch};
  const SliceRule qkv_columns{.dim = 1, .blocks = 3, .elements_per_hidden = s.head_size};
  const SliceRule head_rows{.dim = 0, .elements_per_hidden = s.head_size};
  builder.layer_norm(block_name + ".ln_1", s.width, s.tokens, whole);
  conv1d(builder, name + ".c_attn", s.width, 3 * s.width, s.tokens, {.branch = branch, .output = qkv_columns},
         kInitDeviation);
  builder.operation({.kind = OperationKind::kCausalAttention,
                     .rows = s.tokens,
                     .in = s.width,
                     .span = s.tokens,
                     .head_size = s.head_size},
                    {.branch = branch, .output = head_rows});
  conv1d(builder, name + ".c_proj", s.width, s.width, s.tokens,
         {.branch = branch, .input = head_rows, .scales_branch_output = true}, s.out_deviation);
  builder.operation({.kind = OperationKind::kAdd, .rows = s.tokens, .in = s.width}, whole);

  BranchActivations& saved = builder.saved(branch);
  saved.owned.elements = 4 * s.stream();  // q, k, v, c_proj's input
  saved.owned.bytes = kBytesOfSum * static_cast<double>(s.tokens * s.heads);
  saved.frozen = saved.owned;
  saved.with_owned = saved.block_frozen = saved.neuron_frozen = s.norm_input();
  saved.with_owned.elements += s.stream();  // c_attn's input
  saved.checkpointed.elements = s.stream();
  // Gradients of the branch's output and its input; gradients of q, k, v and c_proj's input.
  saved.workspace.elements = 2 * s.stream();
  saved.workspace_of_slices.elements = 4 * s.stream();
}

void add_mlp(LayoutBuilder& builder, const std::string& block_name, int block, const Sizes& s) {
  const std::string name = block_name + ".mlp";
  const auto stream = s.tokens * s.width;
  const int branch = builder.begin_branch(name, block, {stream, stream}, s.hidden_width, kNeuronGranularity);
  const LayerPlace hidden{.branch = branch, .output = kColumns, .recomputed_if_frozen = true};
  builder.layer_norm(block_name + ".ln_2", s.width, s.tokens,
                     {.branch = branch, .recomputed_if_frozen = true});
  conv1d(builder, name + ".c_fc", s.width, s.hidden_width, s.tokens, hidden, kInitDeviation);
  builder.operation({.kind = OperationKind::kGelu, .rows = s.tokens, .in = s.hidden_width}, hidden);
  conv1d(builder, name + ".c_proj", s.hidden_width, s.width, s.tokens,
         {.branch = branch, .input = kRows, .scales_branch_output = true}, s.out_deviation);
  builder.operation({.kind = OperationKind::kAdd, .rows = s.tokens, .in = s.width}, {.branch = branch});

  BranchActivations& saved = builder.saved(branch);
  saved.owned.elements = 2 * s.hidden();  // GELU's input and output
  saved.with_owned = saved.neuron_frozen = s.norm_input();
  saved.with_owned.elements += s.stream();  // the norm's output
  saved.neuron_frozen.elements += s.stream();
  saved.block_frozen.elements = s.stream();  // the norm's input, from which all else is recomputed
  saved.checkpointed.elements = s.stream();
  // In GELU's backward pass, after its output was freed: gradients of the branch's output, of GELU's output
  // and of its input, minus the freed tensor.
  saved.workspace.elements = s.stream();
  saved.workspace_of_slices.elements = s.hidden();
}

}  // namespace

ModelLayout layout_of(const Gpt2Spec& spec, int64_t sequence_length) {
  const Sizes s{.tokens = sequence_length,
                .width = *spec.width,
                .hidden_width = *spec.hidden_width,
                .heads = *spec.heads,
                .head_size = *spec.width / *spec.heads,
                .out_deviation = kInitDeviation / std::sqrt(2.0 * static_cast<double>(*spec.depth))};
  LayoutBuilder builder;
  const Initializer normal{Initializer::Kind::kNormal, kInitDeviation};
  builder.parameter("transformer.wte.weight", {*spec.vocab_size, s.width}, ParameterRole::kWeight, normal, {},
                    {});
  builder.parameter("transformer.wpe.weight", {spec.context_length, s.width}, ParameterRole::kWeight, normal,
                    {}, {});
  builder.operation({.kind = OperationKind::kEmbedding,
                     .rows = s.tokens,
                     .in = s.width,
                     .out = *spec.vocab_size,
                     .input_needs_gradient = false},
                    {});
  // Adds the position embeddings.
  builder.operation({.kind = OperationKind::kAdd, .rows = s.tokens, .in = s.width}, {});
  builder.saved().bytes +=
      static_cast<double>(sizeof(int64_t)) * static_cast<double>(s.tokens);  // the tokens
  for (int block = 0; block < static_cast<int>(*spec.depth); ++block) {
    const std::string name = "transformer.h." + std::to_string(block);
    add_attention(builder, name, block, s);
    add_mlp(builder, name, block, s);
  }
  builder.layer_norm("transformer.ln_f", s.width, s.tokens, {});
  builder.operation(
      {.kind = OperationKind::kLinearCrossEntropy, .rows = s.tokens, .in = s.width, .out = *spec.vocab_size},
      {});
  // The loss saves the gradient of its input instead of logits (model/linear_cross_entropy.h).
  builder.saved() += s.norm_input();
  builder.saved().elements += s.stream();
  ModelLayout layout = builder.take();
  layout.loss = {
      .head = layout.parameter_index("transformer.wte.weight"),
      .logits = static_cast<double>(s.tokens * *spec.vocab_size),
      .logits_at_once = static_cast<double>(logit_rows_at_a_time(*spec.vocab_size) * *spec.vocab_size)};
  return layout;
}

}  // namespace sdp
