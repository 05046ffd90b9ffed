#pragma once

// A measured step compared with the plan's prediction.

#include <string>

#include "measure/measure.h"

namespace sdp {

/// The plan's prediction for a process's step without the others.
struct StepPrediction {
  MemoryByKind peak;
  int64_t library_workspace_bytes = 0;
  double step_ms = 0;
};

/// Output of `plan --measure`: predicted and measured bytes by kind, and the step time.
std::string describe_measurement(const Experiment& experiment, const StepMeasurement& measured,
                                 const StepPrediction& predicted);
/// The same as JSON.
std::string measurement_json(const StepMeasurement& measured, const StepPrediction& predicted);

}  // namespace sdp
