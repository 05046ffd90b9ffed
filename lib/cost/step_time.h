#pragma once

// The time of one process's step: the operators that the forward and backward passes call
// (cost/step_captures.h), the update with its copies, and the part of the exchange that computation does
// not hide.
//
//   call        = launch + max(FLOPs / product rate, bytes moved / memory rate)
//   micro-batch = sum over the calls of a worker's step, forward and backward
//
// The recomputation of what frozen parts do not save, and of whole branches with activation checkpointing, is
// among the calls. Several workers of a process run one after another.
//
// The product rate is lower where matrix units are not filled. A GPU computes the result in tiles of about
// 128 x 128 elements: a narrow result leaves a part of a tile idle (tile quantization), and a result of few
// tiles leaves some of the multiprocessors idle, unless the product can be divided along its inner dimension
// (split-K); see NVIDIA, "Matrix Multiplication Background User's Guide".

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "cost/accounting.h"
#include "cost/device_profile.h"
#include "cost/step_captures.h"
#include "subnet/exchange_plan.h"
#include "subnet/nodes.h"

namespace sdp {

/// Seconds of `count` products [m, k] x [k, n] in one kernel, without its launch.
double product_s(const DeviceProfile& device, double m, double k, double n, double count = 1);

/// Seconds of a call for a batch of `samples`, by the formula above.
double call_s(const DeviceProfile& device, const CapturedCall& call, double samples);

struct ComputeTime {
  double forward_s = 0;
  double backward_s = 0;

  double total_s() const { return forward_s + backward_s; }
  ComputeTime& operator+=(const ComputeTime& other) {
    forward_s += other.forward_s;
    backward_s += other.backward_s;
    return *this;
  }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("forward_s", &ComputeTime::forward_s);
    field("backward_s", &ComputeTime::backward_s);
  }
};

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
  double waiting_s() const {
    return std::max(0.0, exchange_forward_s - alongside.forward_s) +
           std::max(0.0, exchange_backward_s - alongside.backward_s) + exchange_after_s;
  }
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

/// Times of computation on a device. The captures must outlive this object.
class ComputeTimes {
 public:
  ComputeTimes(StepCaptures& captures, DeviceProfile device)
      : captures_(captures), device_(std::move(device)) {}

  /// Of a worker's micro-batch.
  ComputeTime of(int worker, int64_t samples);
  /// Of a process, whose cost is `cost` (cost_of); the times of the exchange are left at 0.
  StepSeconds step(const ExchangePlan& exchanges, const Cost& cost, int process, int64_t batch_size);

 private:
  StepCaptures& captures_;
  const DeviceProfile device_;
  std::map<std::pair<std::shared_ptr<const LayerGroupCapture>, int64_t>, ComputeTime> of_layer_group_;
};

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
int64_t updated_and_copied_bytes(const ExchangePlan& exchanges, const Cost& cost);

/// Seconds of NCCL's collectives, which other implementations of data parallelism, ZeRO and FSDP use: until
/// every process has sent `bytes_sent_by_each` in `passes` reduce-scatters and all-gathers (an all-reduce is
/// both). 0 for one process. NCCL builds several rings, each of which leaves a node once, through an adapter
/// of its own (nccl-tests, doc/PERFORMANCE.md, "Bus bandwidth"). With N processes, L adapters per node, and
/// bandwidth B_inside to processes of the same node and B_between through one adapter,
///
///   t = bytes that a process sends x max(1 / B_inside, 1 / (L B_between)) + passes (N - 1) latency
double ring_s(int64_t bytes_sent_by_each, int64_t passes, const NodeMap& nodes, const DeviceProfile& device);

}  // namespace sdp
