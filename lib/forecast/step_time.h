#pragma once

// The time of one process's step: what it computes (forecast/operation_time.h), what it copies and updates,
// and what of its exchange nothing hides.

#include "forecast/accounting.h"
#include "forecast/device_profile.h"
#include "forecast/operation_time.h"
#include "subnet/schedule.h"

namespace sdp {

/// Values that come in before the forward pass needs them go beside it, gradients beside the backward pass
/// that makes them; of several micro-batches, beside the first forward and the last backward pass.
struct StepSeconds {
  ComputeTime compute;    ///< all micro-batches of all workers of the process
  ComputeTime alongside;  ///< of these, the passes that an exchange overlaps
  double exchange_forward_s = 0;
  double exchange_backward_s = 0;
  double exchange_after_s = 0;  ///< which nothing hides
  double update_s = 0;          ///< the optimizer, and copies in and out of buckets

  double exchange_s() const { return exchange_forward_s + exchange_backward_s + exchange_after_s; }
  /// Exchange that the process waits for.
  double waiting_s() const;
  double step_s() const { return compute.total_s() + waiting_s() + update_s; }
};

/// Without exchanges. `cost` is the process's (cost_of), at the batch size of `train`.
StepSeconds step_seconds(const SubnetPlan& plan, const Schedule& schedule, const TrainSpec& train,
                         const Cost& cost, int process, const OperationTimes& times,
                         const DeviceProfile& device);

/// Bytes that the update and the copies around it read and write.
///
/// Update: moments and values are read and written, gradients read. Copies, for s bytes of gradients and v of
/// new values that the process sends, and a share of g bytes that it updates: gradients are packed (2 s + 2
/// g), those that come in are summed (as many as values go out: 3 v, and 6 g with the own ones, zeros before
/// and the division after), values are packed (2 v), and unpacked where they come in (as many as gradients
/// went out: 2 s). With several micro-batches each of them is added to buffers that hold all gradients (three
/// times their bytes).
double updated_and_copied_bytes(const Schedule& schedule, const Cost& cost, int process);

}  // namespace sdp
