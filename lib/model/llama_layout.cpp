#include <algorithm>
#include <cmath>

#include "model/layout_builder.h"
#include "model/llama_spec.h"
#include "spec/value_text.h"

namespace sdp {
namespace {

struct LlamaSize {
  std::string_view name;
  int64_t depth, width, hidden_width, heads, vocab_size;

  /// Of another width, with the same ratio; a multiple of 16, as the hidden widths of all sizes are.
  int64_t hidden_width_of(int64_t other_width) const {
    constexpr int64_t kMultiple = 16;
    return (hidden_width * other_width + kMultiple * width - 1) / (kMultiple * width) * kMultiple;
  }
};

// 134M, 500M and 1B: parameter counts, including embedding and head, are within 2 % of the names. Heads have
// 64 or 128 elements.
constexpr auto kSizes = std::to_array<LlamaSize>({
    {"llama_tiny", 4, 64, 176, 4, 50257},
    {"llama_134m", 12, 768, 2048, 12, 32000},
    {"llama_500m", 14, 1536, 4096, 24, 32000},
    {"llama_1b", 18, 2048, 5120, 16, 32000},
});

constexpr int64_t kNeuronGranularity = 8;
constexpr double kInitDeviation = 0.02;  // transformers' initializer_range

struct Sizes {
  int64_t tokens, width, hidden_width, heads, kv_heads, head_size;
  double out_deviation;  ///< initial deviation of the layers that write to the residual stream

  StreamElements stream() const { return {tokens * width, tokens * width}; }
};

LinearOptions without_bias(double deviation) {
  return {.bias = false, .init = Initializer{Initializer::Kind::kNormal, deviation}};
}

void add_attention(LayoutBuilder& builder, const std::string& block_name, int block, const Sizes& s) {
  const std::string name = block_name + ".self_attn";
  const int64_t group =
      s.heads / s.kv_heads * s.head_size;  // elements of the heads that share a key/value head
  const int branch =
      builder.begin_branch(name, block, s.stream(), s.kv_heads, /*granularity=*/1, "attention");
  const SliceRule group_rows{.dim = 0, .elements_per_hidden = group};
  const SliceRule head_rows{.dim = 0, .elements_per_hidden = s.head_size};
  const SliceRule group_columns{.dim = 1, .elements_per_hidden = group};
  const int64_t q_width = s.heads * s.head_size;
  const int64_t kv_width = s.kv_heads * s.head_size;
  const LayerPlace q_heads{.branch = branch, .output = group_rows};
  const LayerPlace kv_heads{.branch = branch, .output = head_rows};
  const LayerPlace whole{.branch = branch};
  builder.rms_norm(block_name + ".input_layernorm", s.width, whole);
  const LinearOptions in = without_bias(kInitDeviation);
  builder.linear(name + ".q_proj", s.width, q_width, q_heads, in);
  builder.linear(name + ".k_proj", s.width, kv_width, kv_heads, in);
  builder.linear(name + ".v_proj", s.width, kv_width, kv_heads, in);
  builder.linear(name + ".o_proj", q_width, s.width,
                 {.branch = branch, .input = group_columns, .scales_branch_output = true},
                 without_bias(s.out_deviation));
}

void add_mlp(LayoutBuilder& builder, const std::string& block_name, int block, const Sizes& s) {
  const std::string name = block_name + ".mlp";
  const int branch = builder.begin_branch(name, block, s.stream(), s.hidden_width, kNeuronGranularity, "mlp");
  const LayerPlace hidden{.branch = branch, .output = kRows};
  builder.rms_norm(block_name + ".post_attention_layernorm", s.width, {.branch = branch});
  for (const char* layer : {".gate_proj", ".up_proj"})
    builder.linear(name + layer, s.width, s.hidden_width, hidden, without_bias(kInitDeviation));
  builder.linear(name + ".down_proj", s.hidden_width, s.width,
                 {.branch = branch, .input = kColumns, .scales_branch_output = true},
                 without_bias(s.out_deviation));
}

/// Adds the final norm and the head.
void add_head(LayoutBuilder& builder, const LlamaSpec& spec, const Sizes& s) {
  builder.rms_norm("model.norm", s.width, {});
  if (!spec.tied_embeddings)
    builder.parameter("lm_head.weight", {*spec.vocab_size, s.width}, ParameterRole::kWeight,
                      {Initializer::Kind::kNormal, kInitDeviation}, {}, {});
}

}  // namespace

void LlamaSpec::resolve(std::string_view name) {
  const LlamaSize& size =
      *std::find_if(kSizes.begin(), kSizes.end(), [&](const LlamaSize& s) { return s.name == name; });
  depth = depth.value_or(size.depth);
  width = width.value_or(size.width);
  hidden_width = hidden_width.value_or(size.hidden_width_of(*width));
  heads = heads.value_or(heads_of_width(*width, size.width / size.heads));
  kv_heads = kv_heads.value_or(*heads);
  head_size = head_size.value_or(*width / *heads);
  vocab_size = vocab_size.value_or(size.vocab_size);
}

void LlamaSpec::check(const Positions& positions) const {
  const bool has_own_size = positions.is_set("model.head_size");
  if (!has_own_size)
    check_multiple(positions, "model.width", *width, "model.heads", *heads, "all heads have the same size");
  check_multiple(positions, "model.heads", *heads, "model.kv_heads", *kv_heads,
                 "every key/value head serves the same number of heads");
  const std::string key = has_own_size ? "model.head_size" : "model.heads";
  if (*head_size % 2 != 0)
    fail_at(positions.of(key), key,
            "found " + std::to_string(*heads) + " heads of size " + std::to_string(*head_size) +
                ", expected an even size: rotary embeddings rotate pairs of elements");
  if (rope_scaling.low_freq_factor >= rope_scaling.high_freq_factor)
    fail_at(positions.of("model.rope_scaling.high_freq_factor"), "model.rope_scaling.high_freq_factor",
            "found " + yaml_text(rope_scaling.high_freq_factor) +
                ", expected more than low_freq_factor, which is " + yaml_text(rope_scaling.low_freq_factor));
}

LlamaSpec LlamaSpec::tiny() {
  return {.width = 8, .hidden_width = 24, .heads = 4, .vocab_size = 32};
}

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
  for (int block = 0; block < static_cast<int>(*spec.depth); ++block) {
    const std::string name = "model.layers." + std::to_string(block);
    add_attention(builder, name, block, s);
    add_mlp(builder, name, block, s);
  }
  add_head(builder, spec, s);
  return builder.take();
}

}  // namespace sdp
