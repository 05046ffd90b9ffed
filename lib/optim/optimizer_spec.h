#pragma once

// The section `optimizer` of a spec.

#include <string>
#include <vector>

#include "optim/registry.h"

namespace sdp {

struct OptimizerSpec {
  UpdateRule rule = {};
  double lr = 0.1;
  double weight_decay = 5e-4;
  bool decay_norms_and_biases = true;
  double clip_norm = 0;
  bool shard = true;

  bool operator==(const OptimizerSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &OptimizerSpec::rule, "update rule", OnResume::kFixed, InReport::kCompared);
    field("lr", &OptimizerSpec::lr, "peak learning rate", OnResume::kRestOfRun, InReport::kCompared,
          positive());
    field("weight_decay", &OptimizerSpec::weight_decay,
          "sgd: factor of the L2 penalty; adamw: decoupled weight decay", OnResume::kRestOfRun,
          InReport::kCompared, at_least(0));
    field("decay_norms_and_biases", &OptimizerSpec::decay_norms_and_biases,
          "apply weight_decay to normalization parameters and biases too", OnResume::kRestOfRun,
          InReport::kCompared,
          advise_when<OptimizerSpec>([](const OptimizerSpec& s) { return s.weight_decay == 0; },
                                     "has no effect: weight_decay is 0"));
    field("clip_norm", &OptimizerSpec::clip_norm,
          "global gradient norm above which gradients are scaled down; 0: no clipping", OnResume::kRestOfRun,
          InReport::kCompared, at_least(0));
    field("shard", &OptimizerSpec::shard,
          "shard the optimizer state of each unit over the processes that hold it; false: each of them keeps "
          "all "
          "of it",
          OnResume::kFree, InReport::kFollowsRegime);
  }

  void check(const Positions& positions) const {
    rule.visit([&](const auto& own) { own.check(positions); });
  }

  /// Names of the optimizer's state tensors, in checkpoints and elsewhere.
  std::vector<std::string> state_names() const {
    return rule.visit([](const auto& own) { return own.state_names(); });
  }
};

}  // namespace sdp
