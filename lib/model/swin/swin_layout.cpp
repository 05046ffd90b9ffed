#include <cmath>

#include "model/layout_builder.h"
#include "model/swin/swin_stages.h"

namespace sdp {
namespace {

constexpr int64_t kNeuronGranularity = 8;
constexpr int64_t kHeadGranularity = 1;

/// torchvision initializes all linear layers and bias tables with trunc_normal_(std=0.02). It truncates at
/// +-2, which is a hundred deviations, so this is normal(0, 0.02). (The MLPs are first drawn from
/// xavier_uniform and normal, but the loop at the end of SwinTransformer.__init__ draws them again.) Linear
/// biases are zeros.
constexpr Initializer kSwinNormal{Initializer::Kind::kNormal, 0.02};

LinearOptions swin_linear(bool bias = true) {
  return {.bias = bias, .init = kSwinNormal};
}

StreamElements stream_of(const SwinStage& stage) {
  const int64_t elements = stage.size * stage.size * stage.width;
  return {elements, elements};
}

/// Adds a convolution with kernel = stride; weight and bias are uniform(+-1/sqrt(fan_in)), as by default in
/// torch.nn.Conv2d.
void add_patch_embedding(LayoutBuilder& builder, const SwinSpec& spec) {
  const int64_t patch = *spec.patch_size;
  const int64_t fan_in = spec.image_channels * patch * patch;
  const Initializer init{Initializer::Kind::kUniform, 1 / std::sqrt(static_cast<double>(fan_in))};
  builder.parameter("features.0.0.weight", {*spec.width, spec.image_channels, patch, patch},
                    ParameterRole::kWeight, init, {}, {});
  builder.parameter("features.0.0.bias", {*spec.width}, ParameterRole::kBias, init, {}, {});
  builder.layer_norm("features.0.2", *spec.width, {});
}

/// Adds LayerNorm and attention within windows. The hidden units are the heads.
void add_attention(LayoutBuilder& builder, const SwinStage& stage, const std::string& block_name, int block) {
  const std::string name = block_name + ".attn";
  const int64_t width = stage.width;
  const int64_t head_size = width / stage.heads;
  const int64_t table_rows = (2 * stage.window - 1) * (2 * stage.window - 1);
  const int branch = builder.begin_branch(name, block, stream_of(stage), stage.heads, kHeadGranularity);
  const LayerPlace whole{.branch = branch};
  builder.layer_norm(block_name + ".norm1", width, whole);
  // One row for every offset within a window. Its role is bias, because Swin's recipes do not decay it.
  builder.parameter(name + ".relative_position_bias_table", {table_rows, stage.heads}, ParameterRole::kBias,
                    kSwinNormal, whole, kColumns);
  builder.linear(
      name + ".qkv", width, 3 * width,
      {.branch = branch, .output = SliceRule{.dim = 0, .blocks = 3, .elements_per_hidden = head_size}},
      swin_linear());
  const SliceRule head_columns{.dim = 1, .elements_per_hidden = head_size};
  builder.linear(name + ".proj", width, width,
                 {.branch = branch, .input = head_columns, .scales_branch_output = true}, swin_linear());
}

/// Adds LayerNorm, linear, GELU, linear.
void add_mlp(LayoutBuilder& builder, const SwinStage& stage, const std::string& block_name, int block) {
  const std::string name = block_name + ".mlp";
  const int64_t width = stage.width;
  const int64_t hidden_width = kSwinMlpRatio * width;
  const int branch = builder.begin_branch(name, block, stream_of(stage), hidden_width, kNeuronGranularity);
  const LayerPlace hidden{.branch = branch, .output = kRows};
  builder.layer_norm(block_name + ".norm2", width, {.branch = branch});
  builder.linear(name + ".0", width, hidden_width, hidden, swin_linear());
  builder.linear(name + ".3", hidden_width, width,
                 {.branch = branch, .input = kColumns, .scales_branch_output = true}, swin_linear());
}

/// Adds patch merging: concatenation of the positions of each 2x2 square, LayerNorm, linear without bias.
void add_merging(LayoutBuilder& builder, const SwinStage& stage) {
  const int64_t merged = 4 * stage.width;
  builder.linear(stage.merging + ".reduction", merged, 2 * stage.width, {}, swin_linear(/*bias=*/false));
  builder.layer_norm(stage.merging + ".norm", merged, {});
}

}  // namespace

ModelLayout layout_of(const SwinSpec& spec, int64_t) {
  LayoutBuilder builder;
  add_patch_embedding(builder, spec);
  const auto stages = swin_stages(spec);
  for (const SwinStage& stage : stages) {
    for (int i = 0; i < stage.blocks; ++i) {
      const std::string name = stage.name + "." + std::to_string(i);
      add_attention(builder, stage, name, stage.first_block + i);
      add_mlp(builder, stage, name, stage.first_block + i);
    }
    if (!stage.merging.empty()) add_merging(builder, stage);
  }
  const SwinStage& last = stages.back();
  builder.layer_norm("norm", last.width, {});
  builder.linear("head", last.width, spec.num_classes, {}, swin_linear());
  return builder.take();
}

}  // namespace sdp
