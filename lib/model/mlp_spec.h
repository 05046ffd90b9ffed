#pragma once

#include <array>

#include "model/model_row.h"

namespace sdp {

/// Pre-norm residual MLP on the flattened image: x <- x + W2 relu(W1 norm(x)). The layers of a branch are
/// named as in torchvision.ops.MLP.
struct MlpSpec {
  static constexpr auto names = std::to_array<std::string_view>({"mlp"});
  static constexpr bool reads_tokens = false;
  static constexpr bool has_batch_norm = false;
  static constexpr bool normalizes_branch_output = false;
  static constexpr int branches_per_block = 1;
  static constexpr Treatment treatment = kModelTreatment;

  int64_t num_classes = 10;
  std::optional<int64_t> width = {};
  std::optional<int64_t> depth = {};
  std::optional<int64_t> hidden_width = {};
  std::optional<int64_t> image_size = {};
  int64_t image_channels = kColorChannels;

  bool operator==(const MlpSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("num_classes", &MlpSpec::num_classes, "number of classes", in_range(2, 1 << 20));
    field("width", &MlpSpec::width, "channels of the residual stream; unset: 64", in_range(1, kMostWidth));
    field("depth", &MlpSpec::depth, "number of residual branches; unset: 4", in_range(1, 2048));
    field("hidden_width", &MlpSpec::hidden_width, "hidden neurons of each branch; unset: 256",
          in_range(1, 1 << 20));
    field("image_size", &MlpSpec::image_size, "height and width of the input images; unset: 32",
          in_range(1, kMostImageSize), "pixels");
    field("image_channels", &MlpSpec::image_channels, kImageChannelsDoc, in_range(1, 4));
  }

  void resolve(std::string_view name);
  void check(const Positions&) const {}
  static std::string_view timm_architecture() { return ""; }
  static MlpSpec tiny();
};

ModelLayout layout_of(const MlpSpec& spec, int64_t sequence_length);
std::unique_ptr<Model> make_model(const MlpSpec& spec, const DropRates& drop);

}  // namespace sdp
