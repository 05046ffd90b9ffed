#pragma once

// The time of one process's step: computation (forecast/compute_time.h), copies and update, and the part of
// the exchange that computation does not hide.

#include "forecast/accounting.h"
#include "forecast/compute_time.h"
#include "forecast/device_profile.h"
#include "subnet/schedule.h"

namespace sdp {

/// The exchange of new values overlaps the forward pass that needs them, and the exchange of gradients the
/// backward pass that produces them. With several micro-batches per step these are the first forward pass and
/// the last backward pass.
struct StepSeconds {
  ComputeTime compute;    ///< all micro-batches of all workers of the process
  ComputeTime alongside;  ///< the passes among these that an exchange overlaps
  double exchange_forward_s = 0;
  double exchange_backward_s = 0;
  double exchange_after_s = 0;  ///< not hidden by any pass
  double update_s = 0;          ///< the optimizer, and copies into and out of buckets

  double exchange_s() const { return exchange_forward_s + exchange_backward_s + exchange_after_s; }
  /// The part of the exchange that the process waits for.
  double waiting_s() const;
  double step_s() const { return compute.total_s() + waiting_s() + update_s; }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("compute", &StepSeconds::compute);
    field("alongside", &StepSeconds::alongside);
    field("exchange_forward_s", &StepSeconds::exchange_forward_s);
    field("exchange_backward_s", &StepSeconds::exchange_backward_s);
    field("exchange_after_s", &StepSeconds::exchange_after_s);
    field("update_s", &StepSeconds::update_s);
  }
};

/// Times without those of the exchange, which are left at 0. `cost` is the cost of the same process (cost_of)
/// at the batch size of `train`.
StepSeconds step_seconds(const SubnetPlan& plan, const Schedule& schedule, const TrainSpec& train,
                         const Cost& cost, int process, ComputeTimes& times, const DeviceProfile& device);

/// Bytes that the update and the copies around it read and write.
///
/// The update reads and writes moments and values, and reads gradients. The copies, where the process sends s
/// bytes of gradients and v bytes of new values, and updates a share of g bytes:
///
///   2 s + 2 g   gradients are packed
///   3 v         received gradients, as many as the values sent, are summed
///   6 g         the process's own gradients are added, after zeroing the sum and before dividing it
///   2 v         values are packed
///   2 s         received values, as many as the gradients sent, are unpacked
///
/// With several micro-batches, each of them is added to buffers that hold all gradients (three times their
/// bytes).
double updated_and_copied_bytes(const Schedule& schedule, const Cost& cost);

}  // namespace sdp
