#pragma once

// The steps of a run: their number, their learning rates, and after which of them something is done.

#include <cstdint>

#include "experiment/experiment.h"
#include "experiment/schedule_spec.h"
#include "experiment/step_origin.h"

namespace sdp {

/// Length of a run and its warm-up, in steps.
struct RunLength {
  int64_t total_steps = 1;
  double warmup_steps = 0;  ///< of the present size, including the shift
  /// Added to the steps to compute the share of the run that is done, if steps before the last resume had
  /// another size: the run is as long as total_steps + shift steps of the present size.
  double shift = 0;
};

/// Learning rate of step `step` (0-based; `step` and `total` below include the shift). The warm-up is linear,
/// lr (step + 1) / warmup_steps; the schedule covers the remaining steps. With t = (step - warmup) / (total -
/// warmup) and f = final_lr_factor, the learning rate is
///   constant: lr
///   cosine:   lr (f + (1 - f) (1 + cos(pi t)) / 2)
///   linear:   lr (1 - (1 - f) t)
///   step:     lr gamma^m, where m is the number of milestones <= step / total.
double learning_rate(const ScheduleSpec& schedule, double peak_lr, const RunLength& length, int64_t step);

/// How often something is done.
struct StepInterval {
  double steps = 0;  ///< 0: only at the end; not an integer if an epoch is not a whole number of steps
  double shift = 0;  ///< added to the steps done: of an interval in epochs, if earlier steps had another size
};

/// The length of a run in steps. An epoch is dataset_size samples over all workers and replicas.
struct RunSteps {
  RunLength length;
  double steps_per_epoch = 1;
  double epochs = 0;  ///< after scaling by `budget`
  int64_t samples_per_step = 1;
  int64_t dataset_size = 1;
  StepOrigin origin;
  StepInterval eval_every;
  StepInterval checkpoint_every;

  /// For `done` >= origin.step.
  int64_t samples_after(int64_t done) const { return origin.samples_after(done, samples_per_step); }
  double epochs_after(int64_t done) const {
    return static_cast<double>(samples_after(done)) / static_cast<double>(dataset_size);
  }
};

/// Whether the last of `done` steps has reached a multiple of the interval. Always false if it is 0.
bool is_due(const StepInterval& every, int64_t done);

/// Whether a checkpoint is due by time (checkpoint.every_minutes): this long after the start of the run or
/// the end of the last save, whatever caused it.
bool is_due_by_time(const CheckpointSpec& spec, double seconds);

/// What follows a step. Known before the step begins, but for saves that are due by time.
struct StepDecision {
  bool logs = false;  ///< a line of the metrics, which checks the losses: it precedes every checkpoint
  bool saves = false;
  bool audits = false;  ///< compares copies of values between processes
  bool evaluates = false;
  bool exchanges = false;  ///< ends a round of local steps; precedes all others
};

/// After the last of `done` steps. With local steps, what needs the same values on all workers waits for the
/// next exchange; the last step of a run is followed by one.
StepDecision decide(const ExperimentSpec& spec, const RunSteps& steps, int64_t done);

/// Factor by which train.budget scales the epochs.
double budget_factor(const TrainSpec& train, const SubnetPlan& plan);

/// RunLength::warmup_steps of a run with this origin.
double warmup_steps(const ExperimentSpec& spec, const StepOrigin& origin, int64_t dataset_size);

/// A run whose steps have been of this size since `origin`.
RunSteps run_steps(const Experiment& experiment, int64_t dataset_size, const StepOrigin& origin = {});

}  // namespace sdp
