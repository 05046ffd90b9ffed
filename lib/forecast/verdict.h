#pragma once

// What to train with on a device, decided by the figures of a forecast. Accuracy is not predicted. The
// highest coverage that fits is preferred, because in docs/results/evidence a lower one has at best been
// level with it at equal FLOPs.

#include <string>
#include <vector>

#include "forecast/step_forecast.h"

namespace sdp {

enum class Decision {
  kFullCoverage,           ///< data parallelism in this program
  kOtherProgram,           ///< of the methods with the full model only ZeRO-3/FSDP fits
  kThisPlan,               ///< no method with the full model fits
  kThisPlanCheckpointing,  ///< likewise, and this plan fits only with activation checkpointing
  kNothingFits
};
SDP_ENUM_NAMES(Decision, {Decision::kFullCoverage, "full_coverage"},
               {Decision::kOtherProgram, "other_program"}, {Decision::kThisPlan, "this_plan"},
               {Decision::kThisPlanCheckpointing, "this_plan_with_checkpointing"},
               {Decision::kNothingFits, "nothing_fits"})

struct Verdict {
  Decision decision = Decision::kNothingFits;
  std::vector<std::string> fit;  ///< names of the methods that fit, in the forecast's order
  std::string recommended;       ///< the simplest of the fastest methods with the highest coverage that fits
  std::string recommended_here;  ///< likewise of the methods in this program
  std::string fastest;           ///< the method that fits with the least time at equal FLOPs
  double fastest_over_recommended = 1;  ///< ratio of their times at equal FLOPs
  /// Step time per FLOP over that of data parallelism: the ratio of training times if both get the same FLOPs
  /// (`train.budget: flops`).
  double time_at_equal_flops = 1;
  double memory_share = 1;           ///< this plan's peak over that of data parallelism
  std::vector<std::string> changes;  ///< settings with each of which this plan would fit; empty if it fits

  template <class Visitor>
  static void fields(Visitor& field) {
    field("decision", &Verdict::decision);
    field("fit", &Verdict::fit);
    field("recommended", &Verdict::recommended);
    field("recommended_here", &Verdict::recommended_here);
    field("fastest", &Verdict::fastest);
    field("fastest_over_recommended", &Verdict::fastest_over_recommended);
    field("time_at_equal_flops_over_ddp", &Verdict::time_at_equal_flops);
    field("peak_over_ddp", &Verdict::memory_share);
    field("changes", &Verdict::changes);
  }
};

/// `methods`: this plan, then DDP and the others. `run`: this plan's run.
Verdict verdict_of(const std::vector<StepForecast>& methods, const RunForecast& run);

}  // namespace sdp
