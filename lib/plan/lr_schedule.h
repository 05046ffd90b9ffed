#pragma once

#include <cstdint>

#include "experiment/spec/schedule_spec.h"

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

}  // namespace sdp
