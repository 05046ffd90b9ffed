#pragma once

// Sizes in bytes of the tensors that a training step needs on a process; peak.h simulates a step with them.

#include <array>
#include <cstdint>
#include <vector>

#include "subnet/exchange.h"

namespace sdp {

/// Sizes of a bucket's tensors on the process, in bytes.
struct BucketSizes {
  std::array<Volume, kExchangeKinds.size()> buffers = {};  ///< by ExchangeKind
  int64_t own = 0;            ///< the process's share of averaged gradients; the same size again while summed
  int64_t accumulator = 0;    ///< buffer in which gradients are accumulated, if they are
  int64_t strided = 0;        ///< strided gradients, which are copied once more when packed
  int64_t full_gradient = 0;  ///< averaged gradients without shard
  int64_t updated = 0;        ///< new values, unless they are the master values themselves
  int64_t unpacked = 0;       ///< new values of non-contiguous segments, which are assembled before unpacking

  const Volume& of(ExchangeKind kind) const { return buffers[static_cast<size_t>(kind)]; }
};

/// Sizes of a slot's tensors, in bytes; sizes that grow with the batch are per sample.
struct SlotSizes {
  std::vector<int64_t> gradients;  ///< by parameter: gradient of the part that the worker owns
  double stem_saved = 0;           ///< saved activations of the layers before the branches
  std::vector<double> saved;       ///< by branch: saved activations, with those of shared layers that follow
  std::vector<double> recomputed;  ///< by branch: activations that checkpointing frees and recomputes
  std::vector<double> workspace;   ///< by branch: further bytes while the backward pass is in the branch
};

/// Sizes on every process of a schedule. Sizes common to all processes are computed once. Plan and schedule
/// must outlive it.
class StepSizes {
 public:
  StepSizes(const SubnetPlan& plan, const Schedule& schedule, bool checkpoint_activations,
            int64_t convolution_workspace_bytes);

  const SubnetPlan& plan() const { return plan_; }
  const Schedule& schedule() const { return schedule_; }
  /// By parameter, as depths_of returns them.
  const std::vector<int>& depths() const { return depths_; }
  const BucketIndex& index() const { return index_; }
  /// Of the device; 0 if that is not known.
  int64_t convolution_workspace_bytes() const { return convolution_workspace_bytes_; }
  /// Gradient of the head under a chunked loss, in the type of the sums; 0 without a chunked loss.
  int64_t head_gradient_bytes() const;

  /// By bucket.
  std::vector<BucketSizes> buckets_on(int process) const;
  SlotSizes slot_of(int worker) const;

 private:
  BucketSizes bucket_on(int process, size_t bucket) const;
  double bytes_a_sample(const ActivationSize& saved) const;

  const SubnetPlan& plan_;
  const Schedule& schedule_;
  bool checkpoints_;
  int64_t convolution_workspace_bytes_;
  std::vector<int> depths_;
  BucketIndex index_;
  std::vector<std::vector<int64_t>> strided_elements_of_;  ///< by bucket and segment: in strided pieces
};

}  // namespace sdp
