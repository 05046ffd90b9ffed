#include "model/layout_builder.h"
#include "model/resnet/resnet_spec.h"

namespace sdp {
namespace {

constexpr int64_t kChannelGranularity = 8;
constexpr double kBytesPerMaskedElement = 1.0 / 8;

/// Adds one BasicBlock: the branch conv1-bn1-relu-conv2-bn2, whose hidden width is the number of channels
/// between the convolutions, and a projection shortcut if the shape changes. Returns the output size.
int64_t add_basic_block(LayoutBuilder& builder, const std::string& name, int block, int64_t in, int64_t out,
                        int64_t size, int64_t stride, bool follows_pooling) {
  const int64_t out_size = (size + stride - 1) / stride;
  const int64_t positions = out_size * out_size;
  const bool projects = stride != 1 || in != out;
  const int branch =
      builder.begin_branch(name, block, {in * size * size, out * positions}, out, kChannelGranularity);
  const LayerPlace first{.branch = branch, .output = kRows};
  const LayerPlace hidden_place{.branch = branch, .output = kRows, .recomputed_if_frozen = true};
  const LayerPlace second{.branch = branch, .input = kColumns};
  const LayerPlace norm{.branch = branch, .scales_branch_output = true};
  const Operation relu{.kind = OperationKind::kRelu, .rows = positions, .in = out};
  builder.convolution(name + ".conv1", in, out, 3, stride, positions, first);
  builder.batch_norm(name + ".bn1", out, positions, hidden_place);
  builder.operation(relu, hidden_place);
  builder.convolution(name + ".conv2", out, out, 3, 1, positions, second);
  builder.batch_norm(name + ".bn2", out, positions, norm);
  builder.operation({.kind = OperationKind::kAdd, .rows = positions, .in = out}, {.branch = branch});

  const double input = static_cast<double>(in * size * size);
  const double hidden = static_cast<double>(out * positions);
  BranchActivations& saved = builder.saved(branch);
  saved.owned.elements = 2 * hidden;  // bn1's input, conv2's input (ReLU's output)
  saved.frozen.elements = hidden;     // bn1's input, from which the sign of ReLU's input follows
  // bn2's input, the sum over the slices. The block's input is saved as the output of the preceding ReLU: in
  // full if conv1 or the projection is trained with it, otherwise only its sign.
  saved.with_owned.elements = saved.block_frozen.elements = saved.neuron_frozen.elements =
      saved.neuron_empty.elements = hidden;
  // In conv2's backward pass: gradients of the block's output, of conv2's output and of its input, minus
  // bn2's input, which was freed; on a CPU also two of a convolution's tensors in oneDNN's memory format.
  saved.workspace.elements = 4 * hidden;
  if (projects) {
    builder.convolution(name + ".downsample.0", in, out, 1, stride, positions, {});
    builder.batch_norm(name + ".downsample.1", out, positions, {});
    builder.operation(relu, {});
    builder.saved().elements += input + hidden;  // the block's input, the shortcut's BatchNorm input
  } else {
    builder.operation(relu, {.branch = branch});  // without the branch, the input is non-negative already
    saved.with_owned.elements += input;
    saved.checkpointed.elements = input;
    // No other operation saves the output of max-pooling, and its gradient does not need the sign.
    if (!follows_pooling)
      saved.block_frozen.bytes = saved.neuron_frozen.bytes = saved.neuron_empty.bytes =
          input * kBytesPerMaskedElement;
  }
  return out_size;
}

}  // namespace

ModelLayout layout_of(const ResNetSpec& spec, int64_t) {
  LayoutBuilder builder;
  const int64_t width = *spec.width * *spec.width_multiplier;
  int64_t size = add_stem(builder, spec.stem, width, *spec.image_size, spec.image_channels);
  int64_t in = width;
  int block = 0;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t out = width << stage;
    for (int i = 0; i < 2; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      size = add_basic_block(builder, name, block, in, out, size, stage > 0 && i == 0 ? 2 : 1,
                             /*follows_pooling=*/spec.stem == Stem::kImageNet && block == 0);
      ++block;
      in = out;
    }
  }
  builder.saved().bytes +=
      static_cast<double>(in * size * size) * kBytesPerMaskedElement;  // the sign of the last ReLU's input
  builder.operation({.kind = OperationKind::kMean, .rows = size * size, .in = in}, {});
  builder.linear("fc", in, spec.num_classes, 1, {});
  builder.operation({.kind = OperationKind::kCrossEntropy, .in = spec.num_classes}, {});
  builder.saved().elements +=
      static_cast<double>(in + spec.num_classes);  // fc's input, the log-probabilities
  return builder.take();
}

}  // namespace sdp
