#pragma once

// Sizes of what a training step needs on a process, in bytes: what peak.h simulates a step with.

#include <array>
#include <cstdint>
#include <vector>

#include "subnet/exchange.h"

namespace sdp {

/// What a bucket takes on the process, in bytes.
struct BucketSizes {
  std::array<Volume, kExchangeKinds.size()> buffers = {};  ///< by ExchangeKind
  int64_t own = 0;            ///< own part of the averaged gradients, and as much for these
  int64_t accumulator = 0;    ///< where gradients are added up, if they are
  int64_t strided = 0;        ///< gradients that are copied once more to be packed
  int64_t full_gradient = 0;  ///< averaged, without shard
  int64_t updated = 0;        ///< new values that are not the master values themselves
  int64_t unpacked = 0;  ///< new values of segments that are not stored in one stretch, put together first

  const Volume& of(ExchangeKind kind) const { return buffers[static_cast<size_t>(kind)]; }
};

/// Sizes of a slot, in bytes; what grows with the batch is per sample.
struct SlotSizes {
  std::vector<int64_t> gradients;  ///< by parameter: of what the worker owns
  double stem_saved = 0;           ///< before the branches
  std::vector<double> saved;       ///< by branch: for the backward pass, with shared layers that follow
  std::vector<double> recomputed;  ///< by branch: with checkpointing, computed twice and first forgotten
  std::vector<double> workspace;   ///< by branch: beside it, while the backward pass is in the branch
};

/// Sizes on every process of a schedule. What all processes have in common is computed once. Plan and
/// schedule must outlive it.
class StepSizes {
 public:
  StepSizes(const SubnetPlan& plan, const Schedule& schedule, bool checkpoint_activations);

  const SubnetPlan& plan() const { return plan_; }
  const Schedule& schedule() const { return schedule_; }
  /// By parameter, as depths_of.
  const std::vector<int>& depths() const { return depths_; }
  const BucketIndex& index() const { return index_; }
  /// The head's gradient of a chunked loss, in the type of the sums; 0 without such a loss.
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
  std::vector<int> depths_;
  BucketIndex index_;
  std::vector<std::vector<int64_t>> strided_elements_of_;  ///< by bucket and segment: of strided pieces
};

}  // namespace sdp
