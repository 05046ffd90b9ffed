#pragma once

#include <cstdint>

#include "experiment/experiment.h"
#include "plan/lr_schedule.h"

namespace sdp {

/// The length of a run in steps. An epoch is dataset_size samples over all workers and replicas.
struct RunSteps {
  RunLength length;
  double steps_per_epoch = 1;
  double epochs = 0;  ///< after scaling by `budget`
  int64_t samples_per_step = 1;
  /// 0: only at the end; not an integer if an epoch is not a whole number of steps.
  double eval_every_steps = 0;
  double checkpoint_every_steps = 0;  ///< as eval_every_steps
};

/// Whether the last of `done` steps has reached a multiple of `every_steps`. Always false if `every_steps` is
/// 0.
bool is_due(double every_steps, int64_t done);

/// Whether the model is evaluated after `done` steps.
bool evaluation_is_due(const RunSteps& steps, int64_t done);

RunSteps run_steps(const Experiment& experiment, int64_t dataset_size);

}  // namespace sdp
