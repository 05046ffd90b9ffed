#pragma once

// Sizes in bytes of the tensors that a training step needs on a process; peak.h simulates a step with them.

#include <array>
#include <cstdint>
#include <vector>

#include "capture/step_captures.h"
#include "subnet/exchange.h"

namespace sdp {

/// Sizes of a bucket's tensors on the process, in bytes.
struct BucketSizes {
  std::array<Volume, kExchangeKinds.size()> buffers = {};  ///< by ExchangeKind
  int64_t own = 0;            ///< the process's share of averaged gradients; the same size again while summed
  int64_t accumulator = 0;    ///< buffer in which gradients are accumulated, if they are
  int64_t strided = 0;        ///< strided gradients, which are copied once more when packed
  int64_t full_gradient = 0;  ///< averaged gradients without shard, if any are exchanged
  int64_t updated = 0;        ///< copy in which values are updated, if they are not updated in place
  int64_t unpacked = 0;       ///< new values of non-contiguous segments, which are assembled before unpacking
  bool is_alone = false;      ///< no gradients are exchanged (BucketElements::is_alone)
  bool begins_sum = false;    ///< what this process contributes becomes the sum (BucketElements::begins_sum)
  bool keeps_gradients = false;  ///< they are applied in place (subnet/storage.h): there is no own

  /// Whether the buffer in which gradients are accumulated becomes the averaged gradient.
  bool moves_accumulator() const { return is_alone && accumulator > 0; }

  const Volume& of(ExchangeKind kind) const { return buffers[static_cast<size_t>(kind)]; }
};

/// What a slot's forward and backward pass allocate.
struct SlotSizes {
  std::vector<int64_t> gradients;  ///< by parameter: bytes of the gradient of the part that the worker owns
  StepCapture capture;
};

/// Sizes on every process of a schedule. Sizes common to all processes are computed once. Schedule and
/// captures must outlive it. `convolution_workspace_bytes`: of the device; 0 if that is not known.
class StepSizes {
 public:
  StepSizes(const Schedule& schedule, StepCaptures& captures, int64_t convolution_workspace_bytes);

  const SubnetPlan& plan() const { return plan_; }
  const Schedule& schedule() const { return schedule_; }
  const BucketIndex& index() const { return index_; }
  int64_t convolution_workspace_bytes() const { return convolution_workspace_bytes_; }

  /// By bucket.
  std::vector<BucketSizes> buckets_on(int process) const;
  SlotSizes slot_of(int worker) const;

 private:
  BucketSizes bucket_on(int process, size_t bucket, const std::vector<char>& scattered) const;

  const SubnetPlan& plan_;
  const Schedule& schedule_;
  int64_t convolution_workspace_bytes_;
  StepCaptures& captures_;
  BucketIndex index_;
  std::vector<std::vector<int64_t>> strided_elements_of_;  ///< by bucket and segment: in strided pieces
};

}  // namespace sdp
