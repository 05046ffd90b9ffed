#include "model/layout_builder.h"
#include "model/resnet50_spec.h"

namespace sdp {
namespace {

/// The branch conv1-bn1-relu-conv2-bn2-relu-conv3-bn3 of a Bottleneck. The hidden width is the number of
/// conv2's output channels, which conv3 reads. conv1 and bn1 are not sliced, because each channel of conv2
/// reads all channels of bn1.
void add_bottleneck_branch(LayoutBuilder& builder, const ResidualBlock& block, int branch) {
  const LayerPlace whole{.branch = branch};
  const LayerPlace second{.branch = branch, .output = kRows};
  const LayerPlace third{.branch = branch, .input = kColumns};
  const LayerPlace norm{.branch = branch, .scales_branch_output = true};
  builder.convolution(block.name + ".conv1", block.in, block.width, 1, whole);
  builder.batch_norm(block.name + ".bn1", block.width, whole);
  builder.convolution(block.name + ".conv2", block.width, block.width, 3, second);
  builder.batch_norm(block.name + ".bn2", block.width, second);
  builder.convolution(block.name + ".conv3", block.width, block.out, 1, third);
  builder.batch_norm(block.name + ".bn3", block.out, norm);
}

}  // namespace

void ResNet50Spec::resolve(std::string_view) {
  width = width.value_or(64);
  image_size = image_size.value_or(stem == Stem::kImageNet ? kImageNetImageSize : kSmallImageSize);
}

ResNet50Spec ResNet50Spec::tiny() {
  return {.width = 4, .image_size = 8};
}

std::vector<ResidualBlock> blocks_of(const ResNet50Spec& spec) {
  return residual_blocks({3, 4, 6, 3}, *spec.width, /*expansion=*/4);
}

ModelLayout layout_of(const ResNet50Spec& spec, int64_t) {
  return residual_layout({spec.stem, *spec.image_size, spec.image_channels, spec.num_classes},
                         blocks_of(spec), add_bottleneck_branch);
}

}  // namespace sdp
