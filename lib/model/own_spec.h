#pragma once

#include <array>
#include <functional>

#include "model/model_row.h"

namespace sdp {

struct OwnSpec;

/// A network that a program brings itself (examples/own_model), or that is written in Python (lib/python).
struct OwnNetwork {
  std::function<ModelLayout(const OwnSpec&, int64_t sequence_length)> layout;  ///< without FLOPs
  std::function<std::unique_ptr<Model>(const OwnSpec&, const DropRates&)> make;
  bool has_batch_norm = false;
  bool normalizes_branch_output = false;
  int branches_per_block = 1;
  bool has_slices = true;             ///< of the width of its branches, for construction neuron
  bool draws_random_numbers = false;  ///< in training, from the default generator (Model::features)
};

/// The network of all specs with model.name `own` that are made from now on, as the models of registry.h are
/// those of all specs with their names. nullptr: none.
void set_own_network(std::shared_ptr<const OwnNetwork> network);
const std::shared_ptr<const OwnNetwork>& own_network();

/// The network of the program, with what a file says about its data.
struct OwnSpec {
  static constexpr auto names = std::to_array<std::string_view>({"own"});
  static constexpr Treatment treatment = kModelTreatment;

  std::shared_ptr<const OwnNetwork> network = own_network();
  bool has_batch_norm = network && network->has_batch_norm;
  bool normalizes_branch_output = network && network->normalizes_branch_output;
  int branches_per_block = network ? network->branches_per_block : 1;

  bool reads_tokens = false;
  int64_t num_classes = 10;
  std::optional<int64_t> image_size = {};
  int64_t image_channels = kColorChannels;
  std::optional<int64_t> vocab_size = {};

  bool operator==(const OwnSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("reads_tokens", &OwnSpec::reads_tokens, "whether the network reads tokens instead of images");
    field("num_classes", &OwnSpec::num_classes, "number of classes", in_range(2, 1 << 20));
    field("image_size", &OwnSpec::image_size, "height and width of the input images; unset: 32",
          in_range(1, kMostImageSize), "pixels");
    field("image_channels", &OwnSpec::image_channels, kImageChannelsDoc, in_range(1, 4));
    field("vocab_size", &OwnSpec::vocab_size, "number of tokens in the vocabulary, if it reads tokens",
          in_range(2, 1 << 24));
  }

  void resolve(std::string_view name);
  void check(const Positions& positions) const;
  static std::string_view timm_architecture() { return ""; }
  static std::optional<int64_t> most_tokens() { return std::nullopt; }
  /// Throws UsageError if there is no network.
  const OwnNetwork& network_or_throw() const;
};

ModelLayout layout_of(const OwnSpec& spec, int64_t sequence_length);
std::unique_ptr<Model> make_model(const OwnSpec& spec, const DropRates& drop);

}  // namespace sdp
