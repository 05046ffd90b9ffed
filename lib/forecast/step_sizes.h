#pragma once

// Sizes of what a training step needs on a process, in bytes: what peak.h walks through.

#include <cstdint>
#include <vector>

#include "subnet/schedule.h"

namespace sdp {

/// What a bucket takes on the process, in bytes.
struct BucketSizes {
  int64_t reduce_send = 0, reduce_receive = 0;
  int64_t own = 0;                              ///< own part of the averaged gradients, and as much for these
  int64_t accumulator = 0;                      ///< where gradients are added up, if they are
  int64_t strided = 0;                          ///< gradients that are copied once more to be packed
  int64_t spread_send = 0, spread_receive = 0;  ///< averaged gradients, without shard
  int64_t full_gradient = 0;                    ///< averaged, without shard
  int64_t updated = 0;                          ///< new values that are not the master values themselves
  int64_t publish_send = 0, publish_receive = 0;
  int64_t unpacked = 0;  ///< new values of segments that are not stored in one stretch, put together first
};

/// What a slot takes, in bytes; what grows with the batch, a sample.
struct SlotSizes {
  std::vector<int64_t> gradients;  ///< by parameter: of what the worker owns
  double stem_kept = 0;            ///< before the branches
  std::vector<double> kept;        ///< by branch: for the backward pass, with shared layers that follow
  std::vector<double> recomputed;  ///< by branch: with checkpointing, computed twice and first forgotten
  std::vector<double> moment;      ///< by branch: for a moment beside it, in the backward pass
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
  const std::vector<BucketParameters>& parameters_of_buckets() const { return parameters_of_buckets_; }
  /// Buckets that have a piece of the parameter, ascending.
  const std::vector<int>& buckets_of(int parameter) const { return buckets_of_[parameter]; }
  /// The head's gradient of a chunked loss, in the type of the sums; 0 without such a loss.
  int64_t head_gradient_bytes() const;

  /// By bucket.
  std::vector<BucketSizes> buckets_on(int process) const;
  SlotSizes slot_of(int worker) const;

 private:
  BucketSizes bucket_on(int process, size_t bucket) const;
  void add_exchange_sizes(BucketSizes& sizes, const Segment& segment, int process, int64_t value_bytes,
                          int64_t wire_bytes) const;
  bool is_strided(const Piece& piece, int unit) const;
  double bytes_a_sample(const Kept& kept) const;

  const SubnetPlan& plan_;
  const Schedule& schedule_;
  bool checkpoints_;
  std::vector<int> depths_;
  std::vector<BucketParameters> parameters_of_buckets_;
  std::vector<std::vector<int>> buckets_of_;               ///< by parameter
  std::vector<std::vector<int64_t>> strided_elements_of_;  ///< by bucket and segment: of strided pieces
};

}  // namespace sdp
