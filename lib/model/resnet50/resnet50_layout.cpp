#include "model/layout_builder.h"
#include "model/resnet50/resnet50_spec.h"

namespace sdp {
namespace {

constexpr int64_t kChannelGranularity = 8;
constexpr double kBytesPerMaskedElement = 1.0 / 8;

/// Adds one Bottleneck: the branch conv1-bn1-relu-conv2-bn2-relu-conv3-bn3, and a projection shortcut if the
/// shape changes. The hidden width is the number of conv2's output channels, which conv3 reads. conv1 and bn1
/// are not sliced, because each channel of conv2 reads all channels of bn1. Returns the output size.
int64_t add_bottleneck(LayoutBuilder& builder, const std::string& name, int block, int64_t in, int64_t width,
                       int64_t size, int64_t stride) {
  const int64_t out = kBottleneckExpansion * width;
  const int64_t out_size = (size + stride - 1) / stride;
  const int64_t positions = size * size;
  const int64_t out_positions = out_size * out_size;
  const bool projects = stride != 1 || in != out;
  const int branch =
      builder.begin_branch(name, block, {in * positions, out * out_positions}, width, kChannelGranularity);
  const LayerPlace whole{.branch = branch};
  const LayerPlace whole_norm{.branch = branch, .recomputed_if_frozen = true};
  const LayerPlace second{.branch = branch, .output = kRows};
  const LayerPlace second_norm{.branch = branch, .output = kRows, .recomputed_if_frozen = true};
  const LayerPlace third{.branch = branch, .input = kColumns};
  const LayerPlace norm{.branch = branch, .scales_branch_output = true};
  const auto relu = [](int64_t rows, int64_t channels) {
    return Operation{.kind = OperationKind::kRelu, .rows = rows, .in = channels};
  };
  builder.convolution(name + ".conv1", in, width, 1, 1, positions, whole);
  builder.batch_norm(name + ".bn1", width, positions, whole_norm);
  builder.operation(relu(positions, width), whole_norm);
  builder.convolution(name + ".conv2", width, width, 3, stride, out_positions, second);
  builder.batch_norm(name + ".bn2", width, out_positions, second_norm);
  builder.operation(relu(out_positions, width), second_norm);
  builder.convolution(name + ".conv3", width, out, 1, 1, out_positions, third);
  builder.batch_norm(name + ".bn3", out, out_positions, norm);
  builder.operation({.kind = OperationKind::kAdd, .rows = out_positions, .in = out}, whole);

  const double input = static_cast<double>(in * positions);
  const double first = static_cast<double>(width * positions);  // conv1's output
  const double hidden = static_cast<double>(width * out_positions);
  const double output = static_cast<double>(out * out_positions);
  BranchActivations& saved = builder.saved(branch);
  saved.owned.elements = 2 * hidden;  // bn2's input, conv3's input (ReLU's output)
  saved.frozen.elements = hidden;     // bn2's input, from which the sign of ReLU's input follows
  // bn3's input, the sum over the slices; bn1's input, and conv2's input if a slice of conv2 is trained. The
  // block's input is saved as the output of the preceding ReLU: in full if conv1 or the projection is trained
  // with it, otherwise only its sign.
  saved.with_owned.elements = output + 2 * first;
  saved.block_frozen.elements = saved.neuron_frozen.elements = output + first;
  saved.neuron_empty.elements = output;
  // In conv3's backward pass: gradients of the block's output, of conv3's output and of its input, minus
  // bn3's input, which was freed; on a CPU also two of a convolution's tensors in oneDNN's memory format.
  saved.workspace.elements = 2 * output + 2 * hidden;
  if (projects) {
    builder.convolution(name + ".downsample.0", in, out, 1, stride, out_positions, {});
    builder.batch_norm(name + ".downsample.1", out, out_positions, {});
    builder.operation(relu(out_positions, out), {});
    builder.saved().elements += input + output;  // the block's input, the shortcut's BatchNorm input
  } else {
    // Without the branch, the input is non-negative already.
    builder.operation(relu(out_positions, out), whole);
    saved.with_owned.elements += input;
    saved.neuron_frozen.elements += input;
    saved.checkpointed.elements = input;
    saved.block_frozen.bytes = saved.neuron_empty.bytes = input * kBytesPerMaskedElement;
  }
  return out_size;
}

}  // namespace

ModelLayout layout_of(const ResNet50Spec& spec, int64_t) {
  LayoutBuilder builder;
  int64_t size = add_stem(builder, spec.stem, *spec.width, *spec.image_size, spec.image_channels);
  int64_t in = *spec.width;
  int block = 0;
  for (size_t stage = 0; stage < kResNet50Blocks.size(); ++stage) {
    const int64_t width = *spec.width << stage;
    for (int i = 0; i < kResNet50Blocks[stage]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      size = add_bottleneck(builder, name, block++, in, width, size, stage > 0 && i == 0 ? 2 : 1);
      in = kBottleneckExpansion * width;
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
