#pragma once

// The section `optimizer` of a spec.

#include <string>
#include <vector>

#include "optim/registry.h"

namespace sdp {

struct OptimizerSpec {
  UpdateRule rule = {};
  double clip_norm = 0;
  bool shard = true;

  bool operator==(const OptimizerSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &OptimizerSpec::rule, "update rule", OnResume::kFixed, InReport::kCompared);
    field("clip_norm", &OptimizerSpec::clip_norm,
          "global gradient norm above which gradients are scaled down; 0: no clipping", OnResume::kRestOfRun,
          InReport::kCompared, at_least(0));
    field("shard", &OptimizerSpec::shard,
          "shard the optimizer state of each unit over the processes that hold it; false: each of them keeps "
          "all of it",
          OnResume::kFree, InReport::kFollowsRegime);
  }

  void check(const Positions& positions) const {
    rule.visit([&](const auto& own) { own.check(positions); });
  }

  // Of the rule, which has its own defaults.
  double lr() const {
    return rule.visit([](const auto& own) { return own.lr; });
  }
  double weight_decay() const {
    return rule.visit([](const auto& own) { return own.weight_decay; });
  }
  bool decay_norms_and_biases() const {
    return rule.visit([](const auto& own) { return own.decay_norms_and_biases; });
  }

  /// Names of the optimizer's state tensors, in checkpoints and elsewhere.
  std::vector<std::string> state_names() const {
    return rule.visit([](const auto& own) { return own.state_names(); });
  }
};

}  // namespace sdp
