#pragma once

// Schedule: plan + placement -> what is held where and exchanged in which order (docs/design.md, "One
// exchange a bucket"). Parameters are packed in order of depth into buckets of one element type and one
// weight decay. Inside a bucket, consecutive pieces of one unit form a segment; a segment is divided over the
// processes that hold it, and each of them updates its share. For each bucket there is one world all-to-all
// in which a process sends every co-holder the share of its gradients that the co-holder updates, and one
// back with new values to all who read them: the holders, under backward masking all processes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "subnet/member_set.h"
#include "subnet/placement.h"
#include "subnet/plan.h"
#include "subnet/reduce_every.h"

namespace sdp {

struct ScheduleOptions {
  Precision precision = Precision::kFp32;
  int64_t bucket_bytes = 25'000'000;
  bool decay_norms_and_biases = true;
  bool shard = true;  ///< optimizer state split over the holders; false: every holder keeps all of it
  int64_t accumulate_steps = 1;
  ReduceEvery reduce_every = ReduceEvery::kStep;
  std::optional<ElementType> reduce_type = {};  ///< of gradients on the wire; none: their own
  /// Gradients are taken as autograd has them, not at the end of the backward pass.
  bool release_gradients = true;
};

/// What one unit has of a parameter: `elements` of its row-major values, at `offset` of the segment.
struct Piece {
  int parameter = 0;
  int64_t offset = 0;
  int64_t elements = 0;
};

struct Segment {
  int unit = kSharedUnit;
  std::vector<Piece> pieces;
  int64_t elements = 0;
  int owner_slots = 1;    ///< owners of the unit times R: what a gradient sum is divided by
  MemberSet holders;      ///< processes that run a slot of an owner
  MemberSet readers;      ///< processes that have the values: holders and, under backward masking, all
  int64_t alignment = 1;  ///< of the shares, in elements

  bool is_held_by(int process) const { return holders.contains(process); }
  bool is_read_by(int process) const { return readers.contains(process); }
  /// Holder i updates elements [boundary(i), boundary(i + 1)).
  int64_t boundary(int holder) const;
  int64_t share_of_holder(int holder) const { return boundary(holder + 1) - boundary(holder); }
  int64_t share_begin(int process) const;  ///< 0 for a process that does not hold the segment
  int64_t share_elements(int process) const;
};

/// Elements [begin, end) of a piece that fall into a range of its segment; `offset` counts from the range's
/// start.
struct PieceRange {
  int parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;
};

/// Pieces, or ranges of them, in [begin, begin + elements) of the segment.
std::vector<PieceRange> piece_ranges(const Segment& segment, int64_t begin, int64_t elements);

struct Bucket {
  ElementType type = ElementType::kF32;
  bool decays = true;
  std::vector<Segment> segments;
};

struct Schedule {
  Placement placement;
  ScheduleOptions options;
  std::vector<Bucket> buckets;  ///< in order of depth

  /// Type of the bucket's gradients on the wire.
  ElementType wire_type(const Bucket& bucket) const { return options.reduce_type.value_or(bucket.type); }
  /// How often a step reduces each bucket.
  int64_t reductions_per_step() const {
    return options.reduce_every == ReduceEvery::kMicroBatch ? options.accumulate_steps : 1;
  }
  /// Backward passes of a process for each reduction: above 1, gradients are added up in buffers of the sum
  /// type.
  bool accumulates() const {
    return placement.slots_per_process() * options.accumulate_steps > reductions_per_step();
  }
};

/// By parameter: the last branch that begins at it or before it, -1 where none does. The forward pass reads
/// the parameter at that branch's place or after it.
std::vector<int> depths_of(const ModelLayout& layout);

/// Parameters of which a bucket has a piece.
struct BucketParameters {
  std::vector<int> all;       ///< each once
  std::vector<int> first_of;  ///< those of which no earlier bucket has a piece
  int needed_before = 0;      ///< the branch whose place reads the bucket first; -1: read before all branches
};
/// Which bucket has a piece of which parameter.
struct BucketIndex {
  std::vector<BucketParameters> parameters_of;  ///< by bucket
  std::vector<std::vector<int>> buckets_of;     ///< by parameter, ascending
};
BucketIndex index_buckets(const ModelLayout& layout, const Schedule& schedule);

Schedule make_schedule(const SubnetPlan& plan, const Placement& placement, const ScheduleOptions& options);

}  // namespace sdp
