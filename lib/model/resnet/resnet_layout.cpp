#include "model/layout_builder.h"
#include "model/resnet/resnet_spec.h"

namespace sdp {
namespace {

constexpr int64_t kChannelGranularity = 8;

/// Adds one BasicBlock: the branch conv1-bn1-relu-conv2-bn2, whose hidden width is the number of channels
/// between the convolutions, and a projection shortcut if the shape changes. Returns the output size.
int64_t add_basic_block(LayoutBuilder& builder, const std::string& name, int block, int64_t in, int64_t out,
                        int64_t size, int64_t stride) {
  const int64_t out_size = (size + stride - 1) / stride;
  const bool projects = stride != 1 || in != out;
  const int branch = builder.begin_branch(name, block, {in * size * size, out * out_size * out_size}, out,
                                          kChannelGranularity);
  const LayerPlace first{.branch = branch, .output = kRows};
  const LayerPlace second{.branch = branch, .input = kColumns};
  const LayerPlace norm{.branch = branch, .scales_branch_output = true};
  builder.convolution(name + ".conv1", in, out, 3, first);
  builder.batch_norm(name + ".bn1", out, first);
  builder.convolution(name + ".conv2", out, out, 3, second);
  builder.batch_norm(name + ".bn2", out, norm);
  if (projects) {
    builder.convolution(name + ".downsample.0", in, out, 1, {});
    builder.batch_norm(name + ".downsample.1", out, {});
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
      size = add_basic_block(builder, name, block, in, out, size, stage > 0 && i == 0 ? 2 : 1);
      ++block;
      in = out;
    }
  }
  builder.linear("fc", in, spec.num_classes, {});
  return builder.take();
}

}  // namespace sdp
