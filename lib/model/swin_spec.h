#pragma once

#include <array>

#include "model/model_row.h"

namespace sdp {

/// Swin-T (Liu et al. 2021) with the names of torchvision.models.swin_t. With other sizes it is torchvision's
/// SwinTransformer, of which `depths` and `num_heads` are arguments.
struct SwinSpec {
  static constexpr auto names = std::to_array<std::string_view>({"swin_t"});
  static constexpr bool reads_tokens = false;
  static constexpr bool has_batch_norm = false;
  static constexpr bool normalizes_branch_output = false;
  static constexpr int branches_per_block = 2;
  static constexpr Treatment treatment = kModelTreatment;

  int64_t num_classes = 10;
  std::optional<int64_t> width = {};
  std::optional<std::vector<int64_t>> depths = {};
  std::optional<std::vector<int64_t>> num_heads = {};
  std::optional<int64_t> image_size = {};
  int64_t image_channels = kColorChannels;
  std::optional<int64_t> patch_size = {};
  std::optional<int64_t> window_size = {};

  bool operator==(const SwinSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("num_classes", &SwinSpec::num_classes, "number of classes", in_range(2, 1 << 20));
    field("width", &SwinSpec::width,
          "channels of the first stage, doubled in each following stage; unset: 96", in_range(1, kMostWidth));
    field("depths", &SwinSpec::depths, "blocks of each stage; unset: [2, 2, 6, 2]", in_range(1, 2048));
    field("num_heads", &SwinSpec::num_heads, "attention heads of each stage; unset: heads of 32 elements",
          in_range(1, kMostWidth));
    field(
        "image_size", &SwinSpec::image_size,
        "height and width of the input images; unset: 224 with patch_size 4 and window_size 7, otherwise 32",
        in_range(1, kMostImageSize), "pixels");
    field("image_channels", &SwinSpec::image_channels, kImageChannelsDoc, in_range(1, 4));
    field("patch_size", &SwinSpec::patch_size, "height and width of a patch; unset: 4",
          in_range(1, kMostImageSize), "pixels");
    field("window_size", &SwinSpec::window_size, "height and width of an attention window; unset: 7",
          in_range(1, 256), "patches");
  }

  void resolve(std::string_view name);
  void check(const Positions& positions) const;
  static std::string_view timm_architecture() { return ""; }
  static SwinSpec tiny();
};

ModelLayout layout_of(const SwinSpec& spec, int64_t sequence_length);
std::unique_ptr<Model> make_model(const SwinSpec& spec, const DropRates& drop);
LibraryConstants library_constants(const SwinSpec& spec, const ModelLayout& layout);

}  // namespace sdp
