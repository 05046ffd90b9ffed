#pragma once

// The section `eval` of a spec.

#include <cstdint>
#include <optional>

#include "spec/field.h"
#include "spec/visit.h"

namespace sdp {

enum class EvalMode { kFull, kStreamed };
enum class BranchScale { kAuto, kNone, kSurvival };

SDP_ENUM_NAMES(EvalMode, {EvalMode::kFull, "full"}, {EvalMode::kStreamed, "streamed"})
SDP_ENUM_NAMES(BranchScale, {BranchScale::kAuto, "auto"}, {BranchScale::kNone, "none"},
               {BranchScale::kSurvival, "survival"})

struct EvalSpec {
  double every_epochs = 1;
  std::optional<int64_t> every_steps;
  EvalMode mode = EvalMode::kFull;
  std::optional<int64_t> recalibrate_batches;
  BranchScale branch_scale = BranchScale::kAuto;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> max_samples;
  std::optional<int64_t> max_samples_per_subnetwork;

  bool operator==(const EvalSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("every_epochs", &EvalSpec::every_epochs,
          "interval between evaluations; 0: evaluate only at the end", OnResume::kFree,
          InReport::kNotCompared, at_least(0), "epochs",
          advise_when<EvalSpec>([](const EvalSpec& s) { return s.every_steps.has_value(); },
                                "has no effect: every_steps is set and replaces it"));
    field("every_steps", &EvalSpec::every_steps,
          "interval between evaluations in steps; replaces every_epochs", OnResume::kFree,
          InReport::kNotCompared, in_range(1, kMostSteps), "steps");
    field("mode", &EvalSpec::mode, "assemble the full model on every process, or stream it branch by branch",
          OnResume::kFree, InReport::kFollowsRegime);
    field("recalibrate_batches", &EvalSpec::recalibrate_batches,
          "training batches used to re-estimate the BatchNorm statistics of the assembled model; 0: keep the "
          "averaged statistics; unset: 100 under forward masking with C < 1, otherwise 0",
          OnResume::kFree, InReport::kFollowsRegime, in_range(0, kMostSteps), "batches");
    field("branch_scale", &EvalSpec::branch_scale,
          "factor on every branch's output in the assembled model: none, survival (the coverage), or auto "
          "(survival if its loss on training batches is lower by more than its standard error)",
          OnResume::kFree, InReport::kFollowsRegime);
    field("batch_size", &EvalSpec::batch_size,
          "samples per evaluation batch; unset: 100 images or 4 token sequences", OnResume::kFree,
          InReport::kCompared, in_range(1, 1 << 20), "samples");
    field("max_samples", &EvalSpec::max_samples,
          "samples on which the assembled model is evaluated, evenly spread over the test set, at most all "
          "of it; "
          "unset: all images, or as many token sequences as 20 training steps use",
          OnResume::kFree, InReport::kFollowsRegime, in_range(1, kMostEvalSamples), "samples");
    field("max_samples_per_subnetwork", &EvalSpec::max_samples_per_subnetwork,
          "samples on which each single subnetwork is evaluated, evenly spread over max_samples; 0: do not "
          "evaluate subnetworks; unset: max_samples, or as many token sequences as 5 training steps use",
          OnResume::kFree, InReport::kFollowsRegime, in_range(0, kMostEvalSamples), "samples");
  }
};

}  // namespace sdp
