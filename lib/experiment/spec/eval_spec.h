#pragma once

// The section `eval` of a spec.

#include <cstdint>
#include <optional>

#include "spec/limits.h"
#include "spec/visit.h"

namespace sdp {

enum class EvalMode { kFull, kStreamed };
enum class BranchScale { kAuto, kNone, kSurvival };

SDP_ENUM_NAMES(EvalMode, {EvalMode::kFull, "full"}, {EvalMode::kStreamed, "streamed"})
SDP_ENUM_NAMES(BranchScale, {BranchScale::kAuto, "auto"}, {BranchScale::kNone, "none"},
               {BranchScale::kSurvival, "survival"})

struct EvalSpec {
  double every_epochs = 1;
  EvalMode mode = EvalMode::kFull;
  std::optional<int64_t> recalibrate_batches;
  BranchScale branch_scale = BranchScale::kAuto;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> max_samples;
  std::optional<int64_t> max_samples_per_subnetwork;

  bool operator==(const EvalSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("every_epochs", &EvalSpec::every_epochs, "interval between evaluations; 0: only at the end",
          OnResume::kFree, InReport::kNotCompared, at_least(0), "epochs");
    field("mode", &EvalSpec::mode, "assemble the full model on every process, or stream it branch by branch",
          OnResume::kFree, InReport::kFollowsRegime);
    field("recalibrate_batches", &EvalSpec::recalibrate_batches,
          "training batches that re-estimate BatchNorm statistics of the assembled model; 0: none; unset: "
          "100 under "
          "forward masking with C < 1, else 0",
          OnResume::kFree, InReport::kFollowsRegime, in_range(0, kMostSteps), "batches");
    field(
        "branch_scale", &EvalSpec::branch_scale,
        "factor on every branch's output in the assembled model: none, survival (its coverage), or auto: of "
        "these two the one whose loss on a few training batches is lower",
        OnResume::kFree, InReport::kFollowsRegime);
    field("batch_size", &EvalSpec::batch_size, "samples of an evaluation batch; unset: 100, of tokens 4",
          OnResume::kFree, InReport::kCompared, in_range(1, 1 << 20), "samples");
    field("max_samples", &EvalSpec::max_samples,
          "samples that the assembled model is evaluated on, evenly spread over the test set; more than it "
          "has: all; unset: all, of tokens as many as 20 training steps use",
          OnResume::kFree, InReport::kFollowsRegime, in_range(1, kMostEvalSamples), "samples");
    field("max_samples_per_subnetwork", &EvalSpec::max_samples_per_subnetwork,
          "samples that each single subnetwork is evaluated on, evenly spread over max_samples; 0: none; "
          "unset: as max_samples, of tokens as many as 5 training steps use",
          OnResume::kFree, InReport::kFollowsRegime, in_range(0, kMostEvalSamples), "samples");
  }
};

}  // namespace sdp
