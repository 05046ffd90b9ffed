#pragma once

// The section `checkpoint` of a spec.

#include <cstdint>
#include <optional>

#include "spec/field.h"
#include "spec/visit.h"

namespace sdp {

enum class KeepBest { kNone, kAccuracy, kLoss };

SDP_ENUM_NAMES(KeepBest, {KeepBest::kNone, "none"}, {KeepBest::kAccuracy, "accuracy"},
               {KeepBest::kLoss, "loss"})

struct CheckpointSpec {
  static constexpr Treatment treatment{OnResume::kFree, InReport::kNotCompared};

  double every_epochs = 10;
  std::optional<int64_t> every_steps;
  double every_minutes = 30;
  int64_t keep_last = 2;
  KeepBest keep_best = KeepBest::kNone;
  bool at_start = false;

  bool operator==(const CheckpointSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("every_epochs", &CheckpointSpec::every_epochs,
          "interval between checkpoints; 0: at the end, and as every_minutes says", at_least(0), "epochs",
          advise_when<CheckpointSpec>([](const CheckpointSpec& s) { return s.every_steps.has_value(); },
                                      "has no effect: every_steps is set and replaces it"));
    field("every_steps", &CheckpointSpec::every_steps,
          "interval between checkpoints in steps; replaces every_epochs", in_range(1, kMostSteps), "steps");
    field(
        "every_minutes", &CheckpointSpec::every_minutes,
        "also save at the first logging interval that ends at least this long after the last checkpoint; 0: "
        "do not save by time",
        at_least(0), "minutes");
    field("keep_last", &CheckpointSpec::keep_last, "number of most recent checkpoints to keep",
          in_range(1, kMostSteps));
    field("keep_best", &CheckpointSpec::keep_best,
          "also save and keep the checkpoint whose evaluation was the best so far, by the assembled model's "
          "accuracy or loss");
    field("at_start", &CheckpointSpec::at_start, "also save a checkpoint at step 0");
  }
};

}  // namespace sdp
