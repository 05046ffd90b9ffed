#pragma once

// An ExchangePlan follows from a plan and a slot map. It says which process holds what, and what is exchanged
// in which order (docs/design.md, "One exchange a bucket"). Parameters are packed in order of depth into
// buckets of one element type, parameter group and weight decay. Inside a bucket, consecutive slices of one
// unit form a segment; a segment is divided over the processes that hold it, and each of them updates its
// shard. Each bucket has one all-to-all over all processes in which every process sends each co-holder the
// shard of its gradients that the co-holder updates, and one that sends new values back to all readers: the
// holders, or with backward masking all processes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "spec/field.h"
#include "subnet/plan.h"
#include "subnet/slot_map.h"

namespace sdp {

/// When gradients are reduced: once per step, as the sum over its micro-batches, or after each micro-batch.
enum class ReduceEvery { kStep, kMicroBatch };

SDP_ENUM_NAMES(ReduceEvery, {ReduceEvery::kStep, "step"}, {ReduceEvery::kMicroBatch, "micro_batch"})

struct ExchangeOptions {
  Precision precision = Precision::kFp32;
  int64_t bucket_bytes = 25'000'000;
  bool decay_norms_and_biases = true;
  std::vector<int> group_of = {};  ///< by parameter: index in optimizer.groups, -1: none; empty: all -1
  bool shard = true;  ///< divide optimizer state over the holders; false: every holder keeps all of it
  int64_t accumulate_steps = 1;
  ReduceEvery reduce_every = ReduceEvery::kStep;
  std::optional<ElementType> reduce_type = {};  ///< type of gradients on the wire; none: the gradients' type
  /// Take each gradient as soon as autograd has computed it, not at the end of the backward pass.
  bool release_gradients = true;
};

/// One unit's elements of a parameter in storage order. They begin at `offset` in the segment.
struct Slice {
  int parameter = 0;
  int64_t offset = 0;
  int64_t elements = 0;
};

struct Segment {
  int unit = kSharedUnit;
  std::vector<Slice> slices;
  int64_t elements = 0;
  int owner_slots = 1;    ///< owners of the unit times R; the divisor of a gradient sum
  MemberSet holders;      ///< processes that run a slot of an owner; none: nobody changes the values
  MemberSet readers;      ///< processes that store the values: the holders, or with backward masking all
  int64_t alignment = 1;  ///< of the shards, in elements

  bool is_held_by(int process) const { return holders.contains(process); }
  bool is_read_by(int process) const { return readers.contains(process); }
  /// Holder i updates elements [boundary(i), boundary(i + 1)).
  int64_t boundary(int holder) const;
  int64_t shard_of_holder(int holder) const { return boundary(holder + 1) - boundary(holder); }
  int64_t shard_begin(int process) const;  ///< 0 for a process that does not hold the segment
  int64_t shard_elements(int process) const;
};

/// Elements [begin, end) of a slice that lie in a range of its segment; `offset` counts from the beginning of
/// that range.
struct SliceRange {
  int parameter = 0;
  int unit = kSharedUnit;
  size_t slice = 0;  ///< index among the segment's slices
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;

  int64_t elements() const { return end - begin; }
};

/// The slices, or ranges of slices, in [begin, begin + elements) of the segment.
std::vector<SliceRange> slice_ranges(const Segment& segment, int64_t begin, int64_t elements);

struct Bucket {
  ElementType type = ElementType::kF32;
  bool decays = true;
  int group = -1;  ///< ExchangeOptions::group_of of its parameters
  std::vector<Segment> segments;
};

struct ExchangePlan {
  SlotMap slot_map;
  ExchangeOptions options;
  std::vector<Bucket> buckets;  ///< in order of depth

  /// Type of the bucket's gradients on the wire.
  ElementType wire_type(const Bucket& bucket) const { return options.reduce_type.value_or(bucket.type); }
  /// How often a step reduces each bucket.
  int64_t reductions_per_step() const {
    return options.reduce_every == ReduceEvery::kMicroBatch ? options.accumulate_steps : 1;
  }
  /// Whether gradients are added up in buffers of the sum type: if a process runs more than one backward pass
  /// per reduction.
  bool accumulates() const {
    return slot_map.slots_per_process() * options.accumulate_steps > reductions_per_step();
  }
};

/// By parameter: the last branch that begins at or before the parameter; -1 if there is none. The forward
/// pass reads the parameter at that branch or after it.
std::vector<int> depths_of(const ModelLayout& layout);

/// Parameters of which a bucket has a slice.
struct BucketParameters {
  std::vector<int> first_of;  ///< each once: those of which no earlier bucket has a slice
  int needed_before = 0;      ///< first branch at which the bucket is read; -1: read before all branches
};
/// Which buckets have slices of which parameters.
struct BucketIndex {
  std::vector<BucketParameters> parameters_of;  ///< by bucket
  std::vector<std::vector<int>> buckets_of;     ///< by parameter, ascending
};
BucketIndex index_buckets(const ModelLayout& layout, const ExchangePlan& exchanges);

ExchangePlan make_exchange_plan(const SubnetPlan& plan, const SlotMap& slot_map,
                                const ExchangeOptions& options);

}  // namespace sdp
