#pragma once

// Runs the real step of one of many processes, without the others, as memory and time can be measured:
// `plan --measure` compares them with the plan.

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "cost/device_profile.h"
#include "experiment/experiment.h"
#include "process/allocations.h"

namespace sdp {

/// One process's step, planned or measured.
struct StepFigures {
  MemoryByKind peak;                    ///< tensors when their total in a step is largest
  int64_t library_workspace_bytes = 0;  ///< not among the tensors (engine/device.h)
  double step_ms = 0;  ///< exchanges take no time, as no other process takes part; measured: the median
};

struct StepMeasurement : StepFigures {
  int process = 0;
  std::string device;
  int64_t steps = 0;  ///< measured steps, after one warm-up step
};

/// Runs steps of process `process` of the experiment's exchange plan on random samples with random values,
/// for at least a second. Counts this process's allocations from then on.
StepMeasurement measure_step(const Experiment& experiment, int process, c10::Device device);

/// Rank `rank` of a group whose other processes do not exist, like PyTorch's FakeProcessGroup. Every
/// collective returns at once. Reductions return this rank's values, an all-to-all receives zeros, and
/// traffic is counted as if it had been sent.
std::unique_ptr<Communicator> fake_communicator(int rank, int size, at::Device device);

/// Rates of this machine's device in the precision, with this process's threads: of a large matrix product
/// and of a large copy, and the time of an operation on one element. Links are not measured; copies within
/// the device's memory stand in for them.
DeviceProfile measure_device(c10::Device device, Precision precision);

/// Output of `plan --measure`: planned and measured bytes by kind, and the step time.
std::string describe_measurement(const Experiment& experiment, const StepMeasurement& measured,
                                 const StepFigures& planned);
/// The same as JSON.
std::string measurement_json(const StepMeasurement& measured, const StepFigures& planned);

}  // namespace sdp
