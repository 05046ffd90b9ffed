#pragma once

#include <array>

#include "model/model_row.h"
#include "model/residual_layout.h"

namespace sdp {

/// ResNet-18 (He et al. 2016) with the names of torchvision.models.resnet18. The stages have 1, 2, 4 and 8
/// times `width` channels. Stem cifar: 3x3 convolution, stride 1, no pooling. WideResNet-18 (after Zagoruyko
/// and Komodakis 2016) is the same model with every width, including the stem's, multiplied by
/// width_multiplier.
struct ResNetSpec {
  static constexpr auto names = std::to_array<std::string_view>({"resnet18", "wide_resnet18"});
  static constexpr bool reads_tokens = false;
  static constexpr bool has_batch_norm = true;
  static constexpr bool normalizes_branch_output = true;
  static constexpr int branches_per_block = 1;
  static constexpr Treatment treatment = kModelTreatment;

  int64_t num_classes = 10;
  Stem stem = Stem::kCifar;
  std::optional<int64_t> width = {};
  std::optional<int64_t> width_multiplier = {};
  std::optional<int64_t> image_size = {};
  int64_t image_channels = kColorChannels;

  bool operator==(const ResNetSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("num_classes", &ResNetSpec::num_classes, "number of classes", in_range(2, 1 << 20));
    field("stem", &ResNetSpec::stem, kStemDoc);
    field("width", &ResNetSpec::width, "channels of the first stage; unset: 64", in_range(1, kMostWidth));
    field("width_multiplier", &ResNetSpec::width_multiplier,
          "factor on the width of every layer; unset: 2 for wide_resnet18, otherwise 1",
          in_range(1, kMostWidth));
    field("image_size", &ResNetSpec::image_size, kResNetImageSizeDoc, in_range(1, kMostImageSize), "pixels");
    field("image_channels", &ResNetSpec::image_channels, kImageChannelsDoc, in_range(1, 4));
  }

  void resolve(std::string_view name);
  void check(const Positions& positions) const;
  std::string_view timm_architecture() const {
    return stem == Stem::kImageNet && *width * *width_multiplier == 64 ? "resnet18" : "";
  }
  static ResNetSpec tiny();
};

std::vector<ResidualBlock> blocks_of(const ResNetSpec& spec);
ModelLayout layout_of(const ResNetSpec& spec, int64_t sequence_length);
std::unique_ptr<Model> make_model(const ResNetSpec& spec, const DropRates& drop);

}  // namespace sdp
