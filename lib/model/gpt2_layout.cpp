#include <algorithm>
#include <cmath>

#include "model/gpt2_spec.h"
#include "model/layout_builder.h"

namespace sdp {
namespace {

struct Gpt2Size {
  std::string_view name;
  int64_t depth, width, heads;
};

constexpr auto kSizes = std::to_array<Gpt2Size>({
    {"gpt2", 12, 768, 12},
    {"gpt2_medium", 24, 1024, 16},
    {"gpt2_large", 36, 1280, 20},
    {"gpt2_xl", 48, 1600, 25},
});

constexpr double kInitDeviation = 0.02;  // transformers' initializer_range

/// Initial deviation of the layers that write to the residual stream.
double out_deviation(const Gpt2Spec& spec) {
  return kInitDeviation / std::sqrt(2.0 * static_cast<double>(*spec.depth));
}

/// transformers' Conv1D. Its weight is [in, out], so the output dimension of a LayerPlace is dimension 1.
void conv1d(LayoutBuilder& builder, const std::string& name, int64_t in, int64_t out, const LayerPlace& place,
            double deviation) {
  builder.parameter(name + ".weight", {in, out}, ParameterRole::kWeight,
                    {Initializer::Kind::kNormal, deviation}, place,
                    place.output ? place.output : place.input);
  std::optional<SliceRule> of_bias = place.output;
  if (of_bias) of_bias->dim = 0;
  builder.parameter(name + ".bias", {out}, ParameterRole::kBias, {}, place, of_bias);
}

void add_attention(LayoutBuilder& builder, const std::string& block_name, int block, const Gpt2Spec& spec,
                   const StreamElements& stream) {
  const int64_t width = *spec.width, head_size = width / *spec.heads;
  const std::string name = block_name + ".attn";
  const int branch = builder.begin_branch(name, block, stream, *spec.heads, /*granularity=*/1, "attention");
  const LayerPlace whole{.branch = branch};
  const SliceRule qkv_columns{.dim = 1, .blocks = 3, .elements_per_hidden = head_size};
  const SliceRule head_rows{.dim = 0, .elements_per_hidden = head_size};
  builder.layer_norm(block_name + ".ln_1", width, whole);
  conv1d(builder, name + ".c_attn", width, 3 * width, {.branch = branch, .output = qkv_columns},
         kInitDeviation);
  conv1d(builder, name + ".c_proj", width, width,
         {.branch = branch, .input = head_rows, .scales_branch_output = true}, out_deviation(spec));
}

void add_mlp(LayoutBuilder& builder, const std::string& block_name, int block, const Gpt2Spec& spec,
             const StreamElements& stream) {
  const int64_t width = *spec.width, hidden_width = *spec.hidden_width;
  const std::string name = block_name + ".mlp";
  const int branch = builder.begin_branch(name, block, stream, hidden_width, kNeuronGranularity, "mlp");
  const LayerPlace hidden{.branch = branch, .output = kColumns};
  builder.layer_norm(block_name + ".ln_2", width, {.branch = branch});
  conv1d(builder, name + ".c_fc", width, hidden_width, hidden, kInitDeviation);
  conv1d(builder, name + ".c_proj", hidden_width, width,
         {.branch = branch, .input = kRows, .scales_branch_output = true}, out_deviation(spec));
}

}  // namespace

void Gpt2Spec::resolve(std::string_view name) {
  const Gpt2Size& size = *std::ranges::find(kSizes, name, &Gpt2Size::name);
  depth = depth.value_or(size.depth);
  width = width.value_or(size.width);
  hidden_width = hidden_width.value_or(4 * *width);
  heads = heads.value_or(heads_of_width(*width, size.width / size.heads));
  vocab_size = vocab_size.value_or(50257);
}

void Gpt2Spec::check(const Positions& positions) const {
  check_multiple(positions, "model.width", *width, "model.heads", *heads, "all heads have the same size");
}

Gpt2Spec Gpt2Spec::tiny() {
  return {.width = 16, .depth = 2, .heads = 4, .vocab_size = 32, .context_length = 32};
}

ModelLayout layout_of(const Gpt2Spec& spec, int64_t sequence_length) {
  const int64_t width = *spec.width;
  const StreamElements stream{sequence_length * width, sequence_length * width};
  LayoutBuilder builder;
  const Initializer normal{Initializer::Kind::kNormal, kInitDeviation};
  builder.parameter("transformer.wte.weight", {*spec.vocab_size, width}, ParameterRole::kWeight, normal, {},
                    {});
  builder.parameter("transformer.wpe.weight", {spec.context_length, width}, ParameterRole::kWeight, normal,
                    {}, {});
  for (int block = 0; block < static_cast<int>(*spec.depth); ++block) {
    const std::string name = "transformer.h." + std::to_string(block);
    add_attention(builder, name, block, spec, stream);
    add_mlp(builder, name, block, spec, stream);
  }
  builder.layer_norm("transformer.ln_f", width, {});
  return builder.take();
}

}  // namespace sdp
