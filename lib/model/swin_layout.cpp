#include <algorithm>
#include <cmath>

#include "model/layout_builder.h"
#include "model/swin_spec.h"
#include "model/swin_stages.h"
#include "spec/value_text.h"

namespace sdp {
namespace {

constexpr size_t kMostStages = 6;

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
  const int branch = builder.begin_branch(name, block, stream_of(stage), stage.heads, /*granularity=*/1);
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

void SwinSpec::resolve(std::string_view) {
  constexpr int64_t kImageNetPatch = 4;
  constexpr int64_t kImageNetWindow = 7;
  constexpr int64_t kHeadSize = 32;
  width = width.value_or(96);
  depths = depths.value_or(std::vector<int64_t>{2, 2, 6, 2});
  if (!num_heads) {
    num_heads.emplace();
    for (size_t stage = 0; stage < std::min(depths->size(), kMostStages); ++stage)
      num_heads->push_back(heads_of_width(*width, kHeadSize) << stage);
  }
  patch_size = patch_size.value_or(kImageNetPatch);
  window_size = window_size.value_or(kImageNetWindow);
  const bool is_imagenets = *patch_size == kImageNetPatch && *window_size == kImageNetWindow;
  image_size = image_size.value_or(is_imagenets ? kImageNetImageSize : kSmallImageSize);
}

void SwinSpec::check(const Positions& positions) const {
  if (depths->empty() || depths->size() > kMostStages)
    fail_at(positions.of("model.depths"), "model.depths",
            "found " + yaml_text(*depths) + ", expected the blocks of 1 to 6 stages");
  if (num_heads->size() != depths->size())
    fail_at(positions.of("model.num_heads"), "model.num_heads",
            "found " + yaml_text(*num_heads) +
                ", expected as many stages as model.depths has: " + yaml_text(*depths));
  for (size_t stage = 0; stage < depths->size(); ++stage)
    check_multiple(positions, "model.width", *width << stage, "model.num_heads", (*num_heads)[stage],
                   "all heads have the same size; in stage " + std::to_string(stage));
  check_multiple(positions, "model.image_size", *image_size, "model.patch_size", *patch_size,
                 "the image is divided into whole patches");
}

SwinSpec SwinSpec::tiny() {
  return {.width = 8,
          .num_heads = std::vector<int64_t>{4, 8, 16, 32},
          .image_size = 8,
          .patch_size = 2,
          .window_size = 2};
}

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
