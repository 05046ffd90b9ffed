#pragma once

#include <array>

#include "model/model_row.h"

namespace sdp {

/// The Vision Transformer (Dosovitskiy et al. 2021) with the names of torchvision.models.VisionTransformer.
/// ViT-S (Touvron et al. 2021) is not among torchvision's own sizes.
struct VitSpec {
  static constexpr auto names =
      std::to_array<std::string_view>({"vit_s_16", "vit_b_16", "vit_b_32", "vit_l_16"});
  static constexpr bool reads_tokens = false;
  static constexpr bool has_batch_norm = false;
  static constexpr bool normalizes_branch_output = false;
  static constexpr int branches_per_block = 2;
  static constexpr Treatment treatment = kModelTreatment;

  int64_t num_classes = 10;
  std::optional<int64_t> width = {};
  std::optional<int64_t> depth = {};
  std::optional<int64_t> hidden_width = {};
  std::optional<int64_t> heads = {};
  std::optional<int64_t> image_size = {};
  int64_t image_channels = kColorChannels;
  std::optional<int64_t> patch_size = {};

  bool operator==(const VitSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("num_classes", &VitSpec::num_classes, "number of classes", in_range(2, 1 << 20));
    field("width", &VitSpec::width, "channels of the residual stream", in_range(1, kMostWidth));
    field("depth", &VitSpec::depth, "number of transformer blocks", in_range(1, 2048));
    field("hidden_width", &VitSpec::hidden_width, "hidden neurons of each MLP; unset: 4 times `width`",
          in_range(1, 1 << 20));
    field("heads", &VitSpec::heads, "number of attention heads; unset: heads of 64 elements",
          in_range(1, kMostWidth));
    field("image_size", &VitSpec::image_size,
          "height and width of the input images; unset: 224 with patches of 16 or 32 pixels, otherwise 32",
          in_range(1, kMostImageSize), "pixels");
    field("image_channels", &VitSpec::image_channels, kImageChannelsDoc, in_range(1, 4));
    field("patch_size", &VitSpec::patch_size, "height and width of a patch; unset: that of the name",
          in_range(1, kMostImageSize), "pixels");
  }

  void resolve(std::string_view name);
  void check(const Positions& positions) const;
  static std::string_view timm_architecture() { return ""; }
  static VitSpec tiny();
};

ModelLayout layout_of(const VitSpec& spec, int64_t sequence_length);
std::unique_ptr<Model> make_model(const VitSpec& spec, const DropRates& drop);

}  // namespace sdp
