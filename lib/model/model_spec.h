#pragma once

// The section `model` of a spec.

#include <cstdint>
#include <string>
#include <string_view>

#include "model/registry.h"
#include "subnet/layout.h"

namespace sdp {

struct ModelSpec {
  static constexpr Treatment treatment = kModelTreatment;

  ModelKind kind = {};
  double dropout = 0;
  double stochastic_depth = 0;
  StochasticDepthRule stochastic_depth_rule = StochasticDepthRule::kLinear;

  bool operator==(const ModelSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &ModelSpec::kind, "model architecture and size; own: a network of your own (--network)");
    field("dropout", &ModelSpec::dropout,
          "probability of dropping an element of a branch's output in training", at_least_and_below(0, 1));
    field("stochastic_depth", &ModelSpec::stochastic_depth,
          "probability of dropping a branch for a sample in training (Huang et al. 2016)",
          at_least_and_below(0, 1));
    field("stochastic_depth_rule", &ModelSpec::stochastic_depth_rule,
          "how the probability depends on the branch: linear: it rises from 0 at the first branch to "
          "model.stochastic_depth at the last; uniform: it is the same for every branch",
          advise_when<ModelSpec>([](const ModelSpec& s) { return s.stochastic_depth == 0; },
                                 "has no effect: stochastic_depth is 0"));
  }

  std::string_view name() const { return kind.name(); }
  bool reads_tokens() const {
    return kind.visit([](const auto& model) { return model.reads_tokens; });
  }
  bool has_batch_norm() const {
    return kind.visit([](const auto& model) { return model.has_batch_norm; });
  }
  bool normalizes_branch_output() const {
    return kind.visit([](const auto& model) { return model.normalizes_branch_output; });
  }
  /// Whether training draws random numbers in the model.
  bool draws_random_numbers() const;
  /// Whether the width of its branches divides into slices, for construction neuron.
  bool has_slices() const;
  int branches_per_block() const {
    return kind.visit([](const auto& model) { return model.branches_per_block; });
  }

  // For a resolved spec. Throw std::logic_error if the model reads the other kind of data.
  int64_t image_size() const;  ///< height and width
  int64_t image_channels() const;
  int64_t num_classes() const;
  std::string_view timm_architecture() const;  ///< empty: timm has none
  int64_t vocab_size() const;
  std::optional<int64_t> most_tokens() const;  ///< in a sequence; none: any number
};

/// Sets the keys that are unset to the model's own values.
void resolve_model(ModelSpec& spec);

/// The sizes of a resolved spec by key: "width 64, depth 4, hidden_width 176, ...".
std::string sizes_text(const ModelSpec& spec);

/// Throws UsageError for a resolved spec whose sizes contradict each other.
void check_model(const ModelSpec& spec, const Positions& positions);

/// The resolved spec of the model of that name with its own sizes. Throws std::logic_error if there is none.
ModelSpec model_named(std::string_view name);

/// Likewise with a few thousand parameters: 10 classes and images of 8 pixels, or a vocabulary of 32 tokens.
ModelSpec tiny_model(std::string_view name);

/// Layout of the model that the resolved spec names, without FLOPs (cost/layouts.h). Does not need
/// LibTorch.
ModelLayout structure_of(const ModelSpec& spec, int64_t sequence_length = 1);

}  // namespace sdp
