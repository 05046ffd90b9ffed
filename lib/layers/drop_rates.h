#pragma once

#include "spec/field.h"

namespace sdp {

/// How the probability of dropping a branch follows from model.stochastic_depth. Both rules are from Huang et
/// al. 2016. kLinear: it rises linearly from 0 at the first branch to model.stochastic_depth at the last.
/// kUniform: it is the same for every branch.
enum class StochasticDepthRule { kLinear, kUniform };
SDP_ENUM_NAMES(StochasticDepthRule, {StochasticDepthRule::kLinear, "linear"},
               {StochasticDepthRule::kUniform, "uniform"})

/// Probabilities of random dropping in training, for every model (layers/branch.h).
struct DropRates {
  double dropout = 0;
  double stochastic_depth = 0;
  StochasticDepthRule stochastic_depth_rule = StochasticDepthRule::kLinear;
};

}  // namespace sdp
