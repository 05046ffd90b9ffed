#include "model/layout_builder.h"
#include "model/resnet50/resnet50_spec.h"

namespace sdp {
namespace {

constexpr int64_t kChannelGranularity = 8;

/// Adds one Bottleneck: the branch conv1-bn1-relu-conv2-bn2-relu-conv3-bn3, and a projection shortcut if the
/// shape changes. The hidden width is the number of conv2's output channels, which conv3 reads. conv1 and bn1
/// are not sliced, because each channel of conv2 reads all channels of bn1. Returns the output size.
int64_t add_bottleneck(LayoutBuilder& builder, const std::string& name, int block, int64_t in, int64_t width,
                       int64_t size, int64_t stride) {
  const int64_t out = kBottleneckExpansion * width;
  const int64_t out_size = (size + stride - 1) / stride;
  const bool projects = stride != 1 || in != out;
  const int branch = builder.begin_branch(name, block, {in * size * size, out * out_size * out_size}, width,
                                          kChannelGranularity);
  const LayerPlace whole{.branch = branch};
  const LayerPlace second{.branch = branch, .output = kRows};
  const LayerPlace third{.branch = branch, .input = kColumns};
  const LayerPlace norm{.branch = branch, .scales_branch_output = true};
  builder.convolution(name + ".conv1", in, width, 1, whole);
  builder.batch_norm(name + ".bn1", width, whole);
  builder.convolution(name + ".conv2", width, width, 3, second);
  builder.batch_norm(name + ".bn2", width, second);
  builder.convolution(name + ".conv3", width, out, 1, third);
  builder.batch_norm(name + ".bn3", out, norm);
  if (projects) {
    builder.convolution(name + ".downsample.0", in, out, 1, {});
    builder.batch_norm(name + ".downsample.1", out, {});
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
  builder.linear("fc", in, spec.num_classes, {});
  return builder.take();
}

}  // namespace sdp
