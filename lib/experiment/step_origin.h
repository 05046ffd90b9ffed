#pragma once

#include <cstdint>

#include "spec/field.h"

namespace sdp {

/// What the run had done when its steps last changed in samples, micro-batches or share of the budget (a
/// resume with another batch or division): later steps count from here. All 0 in a run without such a change.
struct StepOrigin {
  int64_t step = 0;
  int64_t updates = 0;
  int64_t samples = 0;             ///< consumed: the position in the training order
  int64_t batch_norm_updates = 0;  ///< not 0 at step 0: those of the imported weights
  double epochs = 0;               ///< consumed of train.epochs, which the budget scales
  double warmup = 0;  ///< RunLength::warmup_steps, as it began; 0: by the keys of the exchange plan

  /// Samples consumed by the first `done` steps, if those since the origin have `samples_per_step`: the
  /// position in the training order.
  int64_t samples_after(int64_t done, int64_t samples_per_step) const {
    return samples + (done - step) * samples_per_step;
  }
  /// Those of torchvision's num_batches_tracked after `done` updates, each with one per micro-batch.
  int64_t batch_norm_updates_after(int64_t done, int64_t accumulate_steps) const {
    return batch_norm_updates + (done - updates) * accumulate_steps;
  }

  bool operator==(const StepOrigin&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("step", &StepOrigin::step, at_least(0));
    field("updates", &StepOrigin::updates, at_least(0));
    field("samples", &StepOrigin::samples, at_least(0));
    field("batch_norm_updates", &StepOrigin::batch_norm_updates, at_least(0));
    field("epochs", &StepOrigin::epochs, at_least(0));
    field("warmup", &StepOrigin::warmup, at_least(0), kOrDefault);  // not written by older programs
  }
};

}  // namespace sdp
