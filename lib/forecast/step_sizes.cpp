#include "forecast/step_sizes.h"

#include "subnet/accounting.h"

namespace sdp {

StepSizes::StepSizes(const SubnetPlan& plan, const Schedule& schedule, bool checkpoint_activations)
    : plan_(plan),
      schedule_(schedule),
      checkpoints_(checkpoint_activations),
      depths_(depths_of(plan.layout)),
      parameters_of_buckets_(sdp::parameters_of_buckets(plan.layout, schedule)),
      buckets_of_(plan.layout.parameters.size()) {
  for (size_t b = 0; b < schedule.buckets.size(); ++b) {
    for (int parameter : parameters_of_buckets_[b].all)
      buckets_of_[parameter].push_back(static_cast<int>(b));
    std::vector<int64_t>& strided_of_segment = strided_elements_of_.emplace_back();
    for (const Segment& segment : schedule.buckets[b].segments) {
      int64_t strided = 0;
      for (const Piece& piece : segment.pieces)
        if (is_strided(piece, segment.unit)) strided += piece.elements;
      strided_of_segment.push_back(strided);
    }
  }
}

int64_t StepSizes::head_gradient_bytes() const {
  const int head = plan_.layout.loss.head;
  return head < 0
             ? 0
             : plan_.layout.parameters[head].elements() * bytes_of(sum_type(schedule_.options.precision));
}

/// Whether the unit's piece is a strided view of the tensor it is stored in.
bool StepSizes::is_strided(const Piece& piece, int unit) const {
  const ParameterLayout& parameter = plan_.layout.parameters[piece.parameter];
  if (unit == kSharedUnit || plan_.construction == Construction::kBlock || !parameter.slice) return false;
  const bool rows = parameter.slice->dim == 0 && parameter.slice->blocks == 1;
  const int branch = plan_.units[unit].branch;
  return !rows && plan_.first_unit_of(branch + 1) - plan_.first_unit_of(branch) > 1;
}

/// What a segment adds to the exchanges' buffers, which have no room for what a process keeps to itself.
void StepSizes::add_exchange_sizes(BucketSizes& sizes, const Segment& segment, int process,
                                   int64_t value_bytes, int64_t wire_bytes) const {
  const bool shard = schedule_.options.shard;
  const bool held = segment.is_held_by(process);
  const int64_t mine = segment.share_elements(process);
  const auto holders = static_cast<int64_t>(segment.holders.size());
  const auto readers = static_cast<int64_t>(segment.readers.size());
  if (held) {
    sizes.reduce_send += (segment.elements - mine) * wire_bytes;
    sizes.reduce_receive += mine * (holders - 1) * wire_bytes;
    sizes.publish_send += mine * (shard ? readers - 1 : readers - holders) * value_bytes;
  }
  if (held && !shard) {
    sizes.spread_send += mine * (holders - 1) * wire_bytes;
    sizes.spread_receive += (segment.elements - mine) * wire_bytes;
  }
  if (segment.is_read_by(process) && (shard || !held))
    sizes.publish_receive += (segment.elements - mine) * value_bytes;
}

BucketSizes StepSizes::bucket_on(int process, size_t index) const {
  const Bucket& bucket = schedule_.buckets[index];
  const ElementType sums = sum_type(schedule_.options.precision);
  const int64_t type_bytes = bytes_of(bucket.type);
  const int64_t wire_bytes = bytes_of(schedule_.wire_type(bucket));
  BucketSizes sizes;
  int64_t held = 0;
  int64_t share = 0;
  for (size_t s = 0; s < bucket.segments.size(); ++s) {
    const Segment& segment = bucket.segments[s];
    if (!segment.is_read_by(process)) continue;
    const bool is_held = segment.is_held_by(process);
    add_exchange_sizes(sizes, segment, process, type_bytes, wire_bytes);
    const int64_t strided = strided_elements_of_[index][s];
    if (is_held && !schedule_.accumulates()) sizes.strided += strided * type_bytes;
    if (strided > 0) sizes.unpacked += segment.elements * type_bytes;
    if (is_held) held += segment.elements;
    share += segment.share_elements(process);
  }
  sizes.own = share * bytes_of(sums);
  if (schedule_.accumulates()) sizes.accumulator = held * bytes_of(sums);
  if (!schedule_.options.shard) sizes.full_gradient = held * type_bytes;
  const bool has_master = type_bytes < bytes_of(sums);
  if (!has_master) sizes.updated = (schedule_.options.shard ? share : held) * bytes_of(sums);
  return sizes;
}

std::vector<BucketSizes> StepSizes::buckets_on(int process) const {
  std::vector<BucketSizes> sizes;
  for (size_t b = 0; b < schedule_.buckets.size(); ++b)
    sizes.push_back(bucket_on(process, b));
  return sizes;
}

double StepSizes::bytes_a_sample(const Kept& kept) const {
  return kept.elements * static_cast<double>(bytes_of(compute_type(schedule_.options.precision))) +
         kept.bytes;
}

SlotSizes StepSizes::slot_of(int worker) const {
  SlotSizes sizes;
  sizes.gradients = gradient_bytes(plan_, schedule_.options.precision, worker);
  sizes.stem_kept = bytes_a_sample(plan_.layout.stem_kept);
  for (int b = 0; b < static_cast<int>(plan_.layout.branches.size()); ++b) {
    const double computed = bytes_a_sample(plan_.branch_kept(worker, b));
    const double kept = checkpoints_
                            ? bytes_a_sample(plan_.branch_kept(worker, b, /*checkpoint_activations=*/true))
                            : computed;
    sizes.kept.push_back(kept + bytes_a_sample(plan_.layout.branches[b].shared_kept));
    sizes.recomputed.push_back(computed - kept);
    sizes.moment.push_back(bytes_a_sample(plan_.branch_moment(worker, b)) + sizes.recomputed.back());
  }
  return sizes;
}

}  // namespace sdp
