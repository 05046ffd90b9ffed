#pragma once

// The real step of one of many processes, run without the others: what `plan --measure` compares with the
// plan.

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "experiment/experiment.h"
#include "forecast/device_profile.h"
#include "memory/allocations.h"

namespace sdp {

struct StepMeasurement {
  int process = 0;
  std::string device;
  MemoryByKind peak;   ///< tensors at the moment of a step when most stand
  double step_ms = 0;  ///< median; exchanges take no time, as nobody is there to answer
  int64_t steps = 0;   ///< measured, after one to warm up
};

/// Runs `steps` steps of process `process` of the experiment's schedule on random samples. Counts this
/// process's allocations from then on.
StepMeasurement measure_step(const Experiment& experiment, int process, c10::Device device, int64_t steps);

/// Rates of this machine's device in the precision, with the threads that this process has: of a large matrix
/// product and of a large copy, and the time of an operation on one element. Operations are timed one by one
/// (measure/operation_timer.h). Links are not measured: copies within the device's memory stand for them.
DeviceProfile measure_device(c10::Device device, Precision precision);

}  // namespace sdp
