#include <cmath>

#include "model/layout_builder.h"
#include "model/swin/swin_stages.h"

namespace sdp {
namespace {

constexpr int64_t kNeuronGranularity = 8;
constexpr int64_t kHeadGranularity = 1;
constexpr double kBytesOfStatistics = 8;  // mean and 1/deviation of a LayerNorm's position, fp32

/// torchvision initializes all linear layers and bias tables with trunc_normal_(std=0.02). It truncates at
/// +-2, which is a hundred deviations, so this is normal(0, 0.02). (The MLPs are first drawn from
/// xavier_uniform and normal, but the loop at the end of SwinTransformer.__init__ draws them again.) Linear
/// biases are zeros.
constexpr Initializer kSwinNormal{Initializer::Kind::kNormal, 0.02};

LinearOptions swin_linear(bool bias = true) {
  return {.bias = bias, .init = kSwinNormal};
}

/// Elements and bytes that a LayerNorm saves: its input and its statistics.
ActivationSize norm_input(int64_t positions, int64_t width) {
  return {.elements = static_cast<double>(positions * width),
          .bytes = kBytesOfStatistics * static_cast<double>(positions)};
}

StreamElements stream_of(const SwinStage& stage) {
  const int64_t elements = stage.size * stage.size * stage.width;
  return {elements, elements};
}

/// Adds a convolution with kernel = stride; weight and bias are uniform(+-1/sqrt(fan_in)), as by default in
/// torch.nn.Conv2d.
void add_patch_embedding(LayoutBuilder& builder, const SwinSpec& spec) {
  const int64_t patch = *spec.patch_size;
  const int64_t size = *spec.image_size / patch;
  const int64_t fan_in = spec.image_channels * patch * patch;
  const Initializer init{Initializer::Kind::kUniform, 1 / std::sqrt(static_cast<double>(fan_in))};
  builder.parameter("features.0.0.weight", {*spec.width, spec.image_channels, patch, patch},
                    ParameterRole::kWeight, init, {}, {});
  builder.parameter("features.0.0.bias", {*spec.width}, ParameterRole::kBias, init, {}, {});
  builder.operation({.kind = OperationKind::kConvolution,
                     .rows = size * size,
                     .in = spec.image_channels,
                     .out = *spec.width,
                     .kernel = patch,
                     .stride = patch,
                     .input_needs_gradient = false},
                    {});
  builder.layer_norm("features.0.2", *spec.width, size * size, {});
  builder.saved().elements += static_cast<double>(fan_in * size * size);
  builder.saved() += norm_input(size * size, *spec.width);
}

/// Adds LayerNorm and attention within windows. The hidden units are the heads. Padding positions are
/// computed as well, as in torchvision.
void add_attention(LayoutBuilder& builder, const SwinStage& stage, const std::string& block_name, int block,
                   bool shifted) {
  const std::string name = block_name + ".attn";
  const int64_t width = stage.width;
  const int64_t head_size = width / stage.heads;
  const int64_t padded = stage.padded_size * stage.padded_size;
  const int64_t table_rows = (2 * stage.window - 1) * (2 * stage.window - 1);
  const int branch = builder.begin_branch(name, block, stream_of(stage), stage.heads, kHeadGranularity);
  const LayerPlace whole{.branch = branch};
  builder.layer_norm(block_name + ".norm1", width, stage.size * stage.size, whole);
  // From the map to windows; below, back again. For shifted windows the map is rolled as well.
  const Operation copy{.kind = OperationKind::kCopy, .rows = padded, .in = width};
  builder.operation(copy, whole);
  if (shifted) builder.operation(copy, whole);
  // One row for every offset within a window. Its role is bias, because Swin's recipes do not decay it.
  builder.parameter(name + ".relative_position_bias_table", {table_rows, stage.heads}, ParameterRole::kBias,
                    kSwinNormal, whole, kColumns);
  builder.linear(
      name + ".qkv", width, 3 * width, padded,
      {.branch = branch, .output = SliceRule{.dim = 0, .blocks = 3, .elements_per_hidden = head_size}},
      swin_linear());
  if (shifted)  // the score bias of every window
    builder.operation(
        {.kind = OperationKind::kCopy, .rows = padded, .in = stage.window_positions() * stage.heads},
        {.branch = branch, .output = kRows, .recomputed_if_frozen = true});
  const SliceRule head_columns{.dim = 1, .elements_per_hidden = head_size};
  builder.operation({.kind = OperationKind::kWindowAttention,
                     .rows = padded,
                     .in = width,
                     .span = stage.window_positions(),
                     .head_size = head_size},
                    {.branch = branch, .input = head_columns, .recomputed_if_frozen = true});
  builder.linear(name + ".proj", width, width, padded,
                 {.branch = branch, .input = head_columns, .scales_branch_output = true}, swin_linear());
  builder.operation(copy, whole);
  if (shifted) builder.operation(copy, whole);
  builder.operation({.kind = OperationKind::kAdd, .rows = stage.size * stage.size, .in = width}, whole);

  const double hidden = static_cast<double>(padded * width);  // elements of q, of the result, ..
  const ActivationSize input = norm_input(stage.size * stage.size, width);
  BranchActivations& saved = builder.saved(branch);
  // Owned, on a CPU: q, k, v, the probabilities and proj's input. On a GPU, ATen's memory-efficient kernel
  // saves q, k, v, its result (which is also saved as proj's input), the logarithms of the softmax
  // denominators and, for shifted windows, the score bias of all windows, which is as large as the
  // probabilities.
  saved.owned.elements = 4 * hidden + static_cast<double>(padded * stage.window_positions() * stage.heads);
  saved.frozen.elements = 3 * hidden;  // q, k, v; attention is recomputed, also on a GPU
  saved.with_owned = saved.block_frozen = saved.neuron_frozen = input;
  saved.with_owned.elements += hidden;  // qkv's input, the windows of the norm's output
  saved.checkpointed.elements = static_cast<double>(stage.size * stage.size * width);
  // In softmax's backward pass, after proj's input was freed: gradients of the branch's output, of the heads'
  // outputs, of v, of the probabilities and of the scores, minus the freed tensor.
  saved.workspace.elements = hidden;
  saved.workspace_of_slices.elements =
      hidden + 2 * static_cast<double>(padded * stage.window_positions() * stage.heads);
}

/// Adds LayerNorm, linear, GELU, linear.
void add_mlp(LayoutBuilder& builder, const SwinStage& stage, const std::string& block_name, int block) {
  const std::string name = block_name + ".mlp";
  const int64_t width = stage.width;
  const int64_t hidden_width = kSwinMlpRatio * width;
  const int64_t positions = stage.size * stage.size;
  const int branch = builder.begin_branch(name, block, stream_of(stage), hidden_width, kNeuronGranularity);
  const LayerPlace hidden{.branch = branch, .output = kRows, .recomputed_if_frozen = true};
  builder.layer_norm(block_name + ".norm2", width, positions,
                     {.branch = branch, .recomputed_if_frozen = true});
  builder.linear(name + ".0", width, hidden_width, positions, hidden, swin_linear());
  builder.operation({.kind = OperationKind::kGelu, .rows = positions, .in = hidden_width}, hidden);
  builder.linear(name + ".3", hidden_width, width, positions,
                 {.branch = branch, .input = kColumns, .scales_branch_output = true}, swin_linear());

  const double input = static_cast<double>(positions * width);
  BranchActivations& saved = builder.saved(branch);
  saved.owned.elements = 2.0 * static_cast<double>(positions * hidden_width);  // GELU's input and output
  saved.with_owned = saved.neuron_frozen = norm_input(positions, width);
  saved.with_owned.elements += input;  // the norm's output
  saved.neuron_frozen.elements += input;
  saved.checkpointed.elements = input;
  // In GELU's backward pass, after its output was freed: gradients of the branch's output, of GELU's output
  // and of its input, minus the freed tensor.
  saved.workspace.elements = input;
  saved.workspace_of_slices.elements = static_cast<double>(positions * hidden_width);
  saved.block_frozen.elements = input;  // the norm's input, from which all else is recomputed
}

/// Adds patch merging: concatenation of the positions of each 2x2 square, LayerNorm, linear without bias.
void add_merging(LayoutBuilder& builder, const SwinStage& stage) {
  const int64_t size = (stage.size + 1) / 2;
  const int64_t merged = 4 * stage.width;
  builder.operation({.kind = OperationKind::kCopy, .rows = size * size, .in = merged}, {});
  builder.linear(stage.merging + ".reduction", merged, 2 * stage.width, size * size, {},
                 swin_linear(/*bias=*/false));
  builder.layer_norm(stage.merging + ".norm", merged, size * size, {});
  builder.saved() += norm_input(size * size, merged);
  builder.saved().elements += static_cast<double>(size * size * merged);  // the linear layer's input
}

}  // namespace

ModelLayout layout_of(const SwinSpec& spec, int64_t) {
  LayoutBuilder builder;
  add_patch_embedding(builder, spec);
  const auto stages = swin_stages(spec);
  for (const SwinStage& stage : stages) {
    for (int i = 0; i < stage.blocks; ++i) {
      const std::string name = stage.name + "." + std::to_string(i);
      add_attention(builder, stage, name, stage.first_block + i,
                    /*shifted=*/i % 2 == 1 && stage.shift > 0);
      add_mlp(builder, stage, name, stage.first_block + i);
    }
    if (!stage.merging.empty()) add_merging(builder, stage);
  }
  const SwinStage& last = stages.back();
  builder.layer_norm("norm", last.width, last.size * last.size, {});
  builder.operation({.kind = OperationKind::kMean, .rows = last.size * last.size, .in = last.width}, {});
  builder.saved() += norm_input(last.size * last.size, last.width);
  builder.linear("head", last.width, spec.num_classes, 1, {}, swin_linear());
  builder.operation({.kind = OperationKind::kCrossEntropy, .in = spec.num_classes}, {});
  builder.saved().elements +=
      static_cast<double>(last.width + spec.num_classes);  // head's input, log-probabilities
  return builder.take();
}

}  // namespace sdp
