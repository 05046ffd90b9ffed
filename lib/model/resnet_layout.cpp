#include "model/layout_builder.h"
#include "model/resnet_spec.h"

namespace sdp {
namespace {

/// The branch conv1-bn1-relu-conv2-bn2 of a BasicBlock, whose hidden width is the number of channels between
/// the convolutions.
void add_basic_branch(LayoutBuilder& builder, const ResidualBlock& block, int branch) {
  const LayerPlace first{.branch = branch, .output = kRows};
  const LayerPlace second{.branch = branch, .input = kColumns};
  const LayerPlace norm{.branch = branch, .scales_branch_output = true};
  builder.convolution(block.name + ".conv1", block.in, block.width, 3, first);
  builder.batch_norm(block.name + ".bn1", block.width, first);
  builder.convolution(block.name + ".conv2", block.width, block.out, 3, second);
  builder.batch_norm(block.name + ".bn2", block.out, norm);
}

}  // namespace

void ResNetSpec::resolve(std::string_view name) {
  width = width.value_or(64);
  width_multiplier = width_multiplier.value_or(name == "wide_resnet18" ? 2 : 1);
  image_size = image_size.value_or(stem == Stem::kImageNet ? kImageNetImageSize : kSmallImageSize);
}

void ResNetSpec::check(const Positions& positions) const {
  if (*width * *width_multiplier > static_cast<int64_t>(kMostWidth))
    fail_at(positions.of("model.width"), "model.width",
            "found width " + std::to_string(*width) + " and width_multiplier " +
                std::to_string(*width_multiplier) + ", expected a product of at most " +
                std::to_string(static_cast<int64_t>(kMostWidth)));
}

ResNetSpec ResNetSpec::tiny() {
  return {.width = 8, .image_size = 8};
}

std::vector<ResidualBlock> blocks_of(const ResNetSpec& spec) {
  return residual_blocks({2, 2, 2, 2}, *spec.width * *spec.width_multiplier);
}

ModelLayout layout_of(const ResNetSpec& spec, int64_t) {
  return residual_layout({spec.stem, *spec.image_size, spec.image_channels, spec.num_classes},
                         blocks_of(spec), add_basic_branch);
}

}  // namespace sdp
