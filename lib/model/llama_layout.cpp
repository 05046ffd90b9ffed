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

constexpr double kInitDeviation = 0.02;  // transformers' initializer_range

LinearOptions without_bias(double deviation) {
  return {.bias = false, .init = Initializer{Initializer::Kind::kNormal, deviation}};
}

/// Of the layers that write to the residual stream. As in GPT-2 (Radford et al. 2019): each of 2 depth
/// branches adds a share of the variance.
LinearOptions output_layer(const LlamaSpec& spec) {
  return without_bias(kInitDeviation / std::sqrt(2.0 * static_cast<double>(*spec.depth)));
}

void add_attention(LayoutBuilder& builder, const std::string& block_name, int block, const LlamaSpec& spec,
                   const StreamElements& stream) {
  const std::string name = block_name + ".self_attn";
  const int64_t width = *spec.width, heads = *spec.heads, kv_heads = *spec.kv_heads;
  const int64_t head_size = *spec.head_size;
  const int64_t group = heads / kv_heads * head_size;  // elements of the heads that share a key/value head
  const int branch = builder.begin_branch(name, block, stream, kv_heads, /*granularity=*/1, "attention");
  const SliceRule group_rows{.dim = 0, .elements_per_hidden = group};
  const SliceRule head_rows{.dim = 0, .elements_per_hidden = head_size};
  const SliceRule group_columns{.dim = 1, .elements_per_hidden = group};
  const int64_t q_width = heads * head_size;
  const int64_t kv_width = kv_heads * head_size;
  const LayerPlace q_place{.branch = branch, .output = group_rows};
  const LayerPlace kv_place{.branch = branch, .output = head_rows};
  builder.rms_norm(block_name + ".input_layernorm", width, {.branch = branch});
  const LinearOptions in = without_bias(kInitDeviation);
  builder.linear(name + ".q_proj", width, q_width, q_place, in);
  builder.linear(name + ".k_proj", width, kv_width, kv_place, in);
  builder.linear(name + ".v_proj", width, kv_width, kv_place, in);
  builder.linear(name + ".o_proj", q_width, width,
                 {.branch = branch, .input = group_columns, .scales_branch_output = true},
                 output_layer(spec));
}

void add_mlp(LayoutBuilder& builder, const std::string& block_name, int block, const LlamaSpec& spec,
             const StreamElements& stream) {
  const int64_t width = *spec.width, hidden_width = *spec.hidden_width;
  const std::string name = block_name + ".mlp";
  const int branch = builder.begin_branch(name, block, stream, hidden_width, kNeuronGranularity, "mlp");
  const LayerPlace hidden{.branch = branch, .output = kRows};
  builder.rms_norm(block_name + ".post_attention_layernorm", width, {.branch = branch});
  for (const char* layer : {".gate_proj", ".up_proj"})
    builder.linear(name + layer, width, hidden_width, hidden, without_bias(kInitDeviation));
  builder.linear(name + ".down_proj", hidden_width, width,
                 {.branch = branch, .input = kColumns, .scales_branch_output = true}, output_layer(spec));
}

}  // namespace

void LlamaSpec::resolve(std::string_view name) {
  const LlamaSize& size = *std::ranges::find(kSizes, name, &LlamaSize::name);
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
  const int64_t width = *spec.width;
  const StreamElements stream{sequence_length * width, sequence_length * width};
  LayoutBuilder builder;
  builder.parameter("model.embed_tokens.weight", {*spec.vocab_size, width}, ParameterRole::kWeight,
                    {Initializer::Kind::kNormal, kInitDeviation}, {}, {});
  for (int block = 0; block < static_cast<int>(*spec.depth); ++block) {
    const std::string name = "model.layers." + std::to_string(block);
    add_attention(builder, name, block, spec, stream);
    add_mlp(builder, name, block, spec, stream);
  }
  builder.rms_norm("model.norm", width, {});
  if (!spec.tied_embeddings)
    builder.parameter("lm_head.weight", {*spec.vocab_size, width}, ParameterRole::kWeight,
                      {Initializer::Kind::kNormal, kInitDeviation}, {}, {});
  return builder.take();
}

}  // namespace sdp
