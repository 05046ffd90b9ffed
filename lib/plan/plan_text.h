#pragma once

// A plan, what it forecasts, and what was measured of it, in words.

#include <string>

#include "experiment/experiment.h"
#include "forecast/forecast.h"
#include "plan/measure.h"

namespace sdp {

/// The tables `sdp-train plan` prints: every worker's share beside data parallelism, balance, spectral gap,
/// memory and time on a device beside other ways to train, what model parallelism would send, and the plan's
/// warnings.
std::string describe_plan(const Experiment& experiment, const Forecast& forecast);

/// What the plan says of a process's step without the others.
struct StepPrediction {
  PeakBytes peak;
  double step_ms = 0;
};

/// What `plan --measure` prints: predicted and measured bytes by kind, and the step's time.
std::string describe_measurement(const Experiment& experiment, const StepMeasurement& measured,
                                 const StepPrediction& predicted);
/// The same as JSON.
std::string measurement_json(const StepMeasurement& measured, const StepPrediction& predicted);

}  // namespace sdp
