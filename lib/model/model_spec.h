#pragma once

// The section `model` of a spec.

#include <cstdint>
#include <string_view>

#include "model/registry.h"

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
    field("name", &ModelSpec::kind, "architecture, or a size of one");
    field("dropout", &ModelSpec::dropout, "share of a branch's output elements dropped in training",
          at_least_and_below(0, 1));
    field("stochastic_depth", &ModelSpec::stochastic_depth,
          "probability of dropping a branch for a sample (Huang et al. 2016)", at_least_and_below(0, 1));
    field("stochastic_depth_rule", &ModelSpec::stochastic_depth_rule,
          "linear: rises from 0 at the first branch to model.stochastic_depth at the last; uniform: the same "
          "for every branch",
          advise_when<ModelSpec>([](const ModelSpec& s) { return s.stochastic_depth == 0; },
                                 "has no effect: stochastic_depth is 0"));
  }

  std::string_view name() const { return kind.name(); }
  bool reads_tokens() const;
  bool has_batch_norm() const;
  bool normalizes_branch_output() const;
  int branches_per_block() const;

  // Of a resolved spec. std::logic_error where the model reads the other kind of data.
  int64_t image_size() const;  ///< height and width
  int64_t num_classes() const;
  int64_t vocab_size() const;
  std::optional<int64_t> most_tokens() const;  ///< of a sequence; none: any number
};

/// Fills what is unset with the model's own values.
void resolve_model(ModelSpec& spec);

/// Throws UsageError for a resolved spec whose sizes do not go together.
void check_model(const ModelSpec& spec, const Positions& positions);

/// The model of that name with its own sizes, resolved. std::logic_error where there is none.
ModelSpec model_named(std::string_view name);

/// The same of a few thousand parameters, of 10 classes and images of 8 pixels, or a vocabulary of 32 tokens.
ModelSpec tiny_model(std::string_view name);

/// The first name of every model.
std::vector<std::string_view> first_model_names();

}  // namespace sdp
