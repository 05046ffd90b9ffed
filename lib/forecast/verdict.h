#pragma once

// What to train with on a device, decided by the figures of a forecast. Accuracy is not predicted. The
// highest coverage that fits is preferred, because in docs/results/evidence a lower one has at best been
// level with it at equal FLOPs; the fastest method at equal FLOPs is named beside it.

#include <string>
#include <vector>

#include "forecast/step_forecast.h"

namespace sdp {

/// Methods are given by name; their settings and figures are in the forecast. "": none.
struct Verdict {
  std::vector<std::string> fit;  ///< the methods that fit, in the forecast's order
  std::string recommended;       ///< the simplest of the fastest methods with the highest coverage that fits
  std::string recommended_here;  ///< likewise of the methods in this program
  std::string fastest;           ///< the method that fits with the least time at equal FLOPs
  std::string fastest_here;      ///< likewise of the methods in this program
  double fastest_over_recommended = 1;  ///< ratio of their times at equal FLOPs
  std::string change;                   ///< the best form of this plan that fits, if it does not fit as it is
  /// Step time per FLOP over that of data parallelism: the ratio of training times if both get the same FLOPs
  /// (`train.budget: flops`).
  double time_at_equal_flops = 1;
  double memory_share = 1;  ///< this plan's peak over that of data parallelism

  template <class Visitor>
  static void fields(Visitor& field) {
    field("fit", &Verdict::fit);
    field("recommended", &Verdict::recommended);
    field("recommended_here", &Verdict::recommended_here);
    field("fastest", &Verdict::fastest);
    field("fastest_here", &Verdict::fastest_here);
    field("fastest_over_recommended", &Verdict::fastest_over_recommended);
    field("change", &Verdict::change);
    field("time_at_equal_flops_over_ddp", &Verdict::time_at_equal_flops);
    field("peak_over_ddp", &Verdict::memory_share);
  }
};

/// Of the methods that fit and are accepted, those of the highest coverage; of these the first one whose time
/// is within 5 % of the shortest, as the methods are in order of simplicity. nullptr if there is none.
const StepForecast* best_of(
    const std::vector<StepForecast>& methods,
    bool (*accepts)(const StepForecast&) = [](const StepForecast&) { return true; });

/// `methods`: this plan, then DDP and the others.
Verdict verdict_of(const std::vector<StepForecast>& methods);

}  // namespace sdp
