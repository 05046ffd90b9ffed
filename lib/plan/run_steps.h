#pragma once

#include <cstdint>

#include "checkpoint/files/manifest.h"
#include "experiment/experiment.h"
#include "plan/lr_schedule.h"

namespace sdp {

/// The length of a run in steps. An epoch is dataset_size samples over all workers and replicas.
struct RunSteps {
  RunLength length;
  double steps_per_epoch = 1;
  double epochs = 0;  ///< after scaling by `budget`
  int64_t samples_per_step = 1;
  int64_t dataset_size = 1;
  StepOrigin origin;
  /// 0: only at the end; not an integer if an epoch is not a whole number of steps.
  double eval_every_steps = 0;
  double checkpoint_every_steps = 0;  ///< as eval_every_steps
  /// Added to the steps done before they are compared with the intervals: 0 for intervals in steps.
  double eval_shift = 0;
  double checkpoint_shift = 0;

  /// Samples consumed by the first `done` steps, for `done` >= origin.step: the position in the training
  /// order.
  int64_t samples_after(int64_t done) const {
    return origin.samples + (done - origin.step) * samples_per_step;
  }
  double epochs_after(int64_t done) const {
    return static_cast<double>(samples_after(done)) / static_cast<double>(dataset_size);
  }
};

/// Whether the last of `done` steps has reached a multiple of `every_steps`, counted with `shift`. Always
/// false if `every_steps` is 0.
bool is_due(double every_steps, int64_t done, double shift = 0);

/// Whether the model is evaluated after `done` steps.
bool evaluation_is_due(const RunSteps& steps, int64_t done);

/// Factor by which train.budget scales the epochs.
double budget_factor(const TrainSpec& train, const SubnetPlan& plan);

/// A run whose steps have been of this size since `origin`.
RunSteps run_steps(const Experiment& experiment, int64_t dataset_size, const StepOrigin& origin = {});

}  // namespace sdp
