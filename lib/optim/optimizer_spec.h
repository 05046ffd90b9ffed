#pragma once

// The section `optimizer` of a spec.

#include <string>
#include <vector>

#include "optim/parameter_group.h"
#include "spec/one_of.h"
#include "spec/position.h"

namespace sdp {

/// One of the rules of optim/registry.h.
using UpdateRule = OneOf<struct UpdateRules>;

/// The rule of a section that names none.
UpdateRule default_rule();

/// The state tensor with the moving average of the values, the last one.
inline constexpr const char* kAverageName = "ema";

struct OptimizerSpec {
  UpdateRule rule = default_rule();
  double clip_norm = 0;
  bool shard = true;
  std::vector<ParameterGroup> groups = {};
  double ema_decay = 0;

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
    field("groups", &OptimizerSpec::groups,
          "parameters with rates of their own; the first group whose pattern matches a parameter applies",
          OnResume::kRestOfRun, InReport::kCompared);
    field("ema_decay", &OptimizerSpec::ema_decay,
          "decay of an exponential moving average of the values, which is evaluated beside the values, such "
          "as 0.999; 0: none",
          OnResume::kFixed, InReport::kCompared, at_least_and_below(0, 1));
  }

  void check(const Positions& positions) const;

  // Of the rule, which has its own defaults.
  double lr() const;
  /// Of a parameter group (group_of).
  double lr_factor(int group) const { return group < 0 ? 1 : groups[static_cast<size_t>(group)].lr_factor; }
  /// What a group says applies to all of its parameters; `decays`: whether the rule's own decay would.
  double weight_decay(int group = -1, bool decays = true) const;
  bool decay_norms_and_biases() const;

  /// Names of the optimizer's state tensors, in checkpoints and elsewhere.
  std::vector<std::string> state_names() const;
};

}  // namespace sdp
