#pragma once

#include <array>

#include "model/model_row.h"
#include "model/residual_layout.h"

namespace sdp {

/// ResNet-50 (He et al. 2016) with the names of torchvision.models.resnet50, in which the second convolution
/// of a block has the block's stride. The stages have 1, 2, 4 and 8 times `width` channels inside their
/// blocks, and 4 times as many between blocks.
struct ResNet50Spec {
  static constexpr auto names = std::to_array<std::string_view>({"resnet50"});
  static constexpr bool reads_tokens = false;
  static constexpr bool has_batch_norm = true;
  static constexpr bool normalizes_branch_output = true;
  static constexpr int branches_per_block = 1;
  static constexpr Treatment treatment = kModelTreatment;

  int64_t num_classes = 10;
  Stem stem = Stem::kCifar;
  std::optional<int64_t> width = {};
  std::optional<int64_t> image_size = {};
  int64_t image_channels = kColorChannels;

  bool operator==(const ResNet50Spec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("num_classes", &ResNet50Spec::num_classes, "number of classes", in_range(2, 1 << 20));
    field("stem", &ResNet50Spec::stem, kStemDoc);
    field("width", &ResNet50Spec::width,
          "channels of the stem and inside the blocks of the first stage; unset: 64",
          in_range(1, kMostWidth));
    field("image_size", &ResNet50Spec::image_size, kResNetImageSizeDoc, in_range(1, kMostImageSize),
          "pixels");
    field("image_channels", &ResNet50Spec::image_channels, kImageChannelsDoc, in_range(1, 4));
  }

  void resolve(std::string_view name);
  void check(const Positions&) const {}
  std::string_view timm_architecture() const {
    return stem == Stem::kImageNet && *width == 64 ? "resnet50" : "";
  }
  static ResNet50Spec tiny();
};

std::vector<ResidualBlock> blocks_of(const ResNet50Spec& spec);
ModelLayout layout_of(const ResNet50Spec& spec, int64_t sequence_length);
std::unique_ptr<Model> make_model(const ResNet50Spec& spec, const DropRates& drop);

}  // namespace sdp
