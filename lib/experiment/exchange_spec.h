#pragma once

// The section `exchange` of a spec: local steps. Workers update their own values with their own optimizer,
// and exchange only every H steps what has changed (Local SGD, Stich 2019; DiLoCo, Douillard et al. 2023,
// arXiv 2311.08105; with backward masking Partial Parameter Updates, arXiv 2509.22418).

#include <cstdint>
#include <optional>

#include "spec/field.h"
#include "spec/visit.h"

namespace sdp {

/// What becomes of the state of a worker's optimizer in an exchange.
enum class InnerState { kKeep, kAverage, kReset };

SDP_ENUM_NAMES(InnerState, {InnerState::kKeep, "keep"}, {InnerState::kAverage, "average"},
               {InnerState::kReset, "reset"})

/// The outer optimizer: SGD whose gradient is the owners' mean of what they have subtracted from the anchor.
struct OuterSpec {
  static constexpr Treatment treatment = {OnResume::kRestOfRun, InReport::kCompared};

  double lr = 0.7;
  double momentum = 0.9;
  bool nesterov = true;

  bool operator==(const OuterSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("lr", &OuterSpec::lr, "outer learning rate; 1 with momentum 0: the owners' values are averaged",
          positive());
    field("momentum", &OuterSpec::momentum, "outer momentum factor", at_least_and_below(0, 1));
    field("nesterov", &OuterSpec::nesterov, "use Nesterov momentum");
  }
};

struct ExchangeSpec {
  std::optional<int64_t> every_steps;
  int64_t warmup_steps = 0;
  InnerState inner_state = InnerState::kKeep;
  OuterSpec outer;

  bool operator==(const ExchangeSpec&) const = default;

  /// Whether workers take local steps.
  bool is_local() const { return every_steps.has_value(); }
  /// The last of the first `done` steps after which there is an exchange; 0: none.
  int64_t last_before(int64_t done) const {
    return done <= warmup_steps ? done : done - (done - warmup_steps) % *every_steps;
  }

  static auto without_local_steps() {
    return advise_when<ExchangeSpec>([](const ExchangeSpec& s) { return !s.is_local(); },
                                     "has no effect: every_steps is not set");
  }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("every_steps", &ExchangeSpec::every_steps,
          "H: each worker updates its own values with an optimizer of its own, and the owners of a unit "
          "exchange what has changed after every H steps; unset: gradients are averaged in every step",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, kMostSteps), "steps");
    field("warmup_steps", &ExchangeSpec::warmup_steps,
          "number of first steps that are each followed by an exchange", OnResume::kRestOfRun,
          InReport::kCompared, in_range(0, kMostSteps), "steps", without_local_steps());
    field("inner_state", &ExchangeSpec::inner_state,
          "what an exchange does to the state of the workers' optimizers: keep it, average it over the "
          "owners, or reset it to zero",
          OnResume::kRestOfRun, InReport::kCompared, without_local_steps());
    field("outer", &ExchangeSpec::outer, "the outer optimizer, which applies the mean change of the owners",
          without_local_steps());
  }
};

}  // namespace sdp
