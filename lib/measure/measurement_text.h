#pragma once

// What was measured of a step beside what the plan says of it.

#include <string>

#include "measure/measure.h"

namespace sdp {

/// What the plan says of a process's step without the others.
struct StepPrediction {
  MemoryByKind peak;
  double step_ms = 0;
};

/// What `plan --measure` prints: predicted and measured bytes by kind, and the step's time.
std::string describe_measurement(const Experiment& experiment, const StepMeasurement& measured,
                                 const StepPrediction& predicted);
/// The same as JSON.
std::string measurement_json(const StepMeasurement& measured, const StepPrediction& predicted);

}  // namespace sdp
