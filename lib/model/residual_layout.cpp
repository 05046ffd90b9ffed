#include "model/residual_layout.h"

#include "model/layout_builder.h"

namespace sdp {
namespace {

/// Adds the stem's layers. Returns the height and width of their output.
int64_t add_stem(LayoutBuilder& builder, const ResidualImages& images, int64_t width) {
  const bool imagenet = images.stem == Stem::kImageNet;
  const int64_t size = imagenet ? (images.size + 1) / 2 : images.size;
  builder.convolution("conv1", images.channels, width, imagenet ? 7 : 3, {});
  builder.batch_norm("bn1", width, {});
  return imagenet ? (size + 1) / 2 : size;  // max-pooling
}

}  // namespace

std::vector<ResidualBlock> residual_blocks(const std::array<int, 4>& blocks_per_stage, int64_t width,
                                           int64_t expansion) {
  std::vector<ResidualBlock> blocks;
  int64_t in = width;
  for (size_t stage = 0; stage < blocks_per_stage.size(); ++stage)
    for (int i = 0; i < blocks_per_stage[stage]; ++i) {
      const int64_t inside = width << stage;
      blocks.push_back({.name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i),
                        .stride = stage > 0 && i == 0 ? 2 : 1,
                        .in = in,
                        .width = inside,
                        .out = expansion * inside});
      in = blocks.back().out;
    }
  return blocks;
}

ModelLayout residual_layout(
    const ResidualImages& images, const std::vector<ResidualBlock>& blocks,
    const std::function<void(LayoutBuilder& builder, const ResidualBlock& block, int branch)>& add_branch) {
  LayoutBuilder builder;
  int64_t size = add_stem(builder, images, blocks.front().in);
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    const ResidualBlock& block = blocks[b];
    const int64_t out_size = (size + block.stride - 1) / block.stride;
    const StreamElements stream{block.in * size * size, block.out * out_size * out_size};
    add_branch(builder, block, builder.begin_branch(block.name, b, stream, block.width, kNeuronGranularity));
    if (block.has_projection()) {
      builder.convolution(block.name + ".downsample.0", block.in, block.out, 1, {});
      builder.batch_norm(block.name + ".downsample.1", block.out, {});
    }
    size = out_size;
  }
  builder.linear("fc", blocks.back().out, images.num_classes, {});
  return builder.take();
}

}  // namespace sdp
