#include "forecast/step_sizes.h"

#include "forecast/accounting.h"
#include "subnet/storage.h"

namespace sdp {

StepSizes::StepSizes(const SubnetPlan& plan, const Schedule& schedule, bool checkpoint_activations,
                     int64_t convolution_workspace_bytes)
    : plan_(plan),
      schedule_(schedule),
      checkpoints_(checkpoint_activations),
      convolution_workspace_bytes_(convolution_workspace_bytes),
      depths_(depths_of(plan.layout)),
      index_(index_buckets(plan.layout, schedule)) {
  // As on a process that has several units of each branch.
  std::vector<bool> is_strided;  // by parameter
  for (const ParameterLayout& parameter : plan.layout.parameters)
    is_strided.push_back(!is_contiguous(parameter, plan.units_of(parameter).size()));
  for (size_t b = 0; b < schedule.buckets.size(); ++b) {
    std::vector<int64_t>& strided_of_segment = strided_elements_of_.emplace_back();
    for (const Segment& segment : schedule.buckets[b].segments) {
      int64_t strided = 0;
      for (const Piece& piece : segment.pieces)
        if (is_strided[piece.parameter]) strided += piece.elements;
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

BucketSizes StepSizes::bucket_on(int process, size_t index) const {
  const Bucket& bucket = schedule_.buckets[index];
  const Precision precision = schedule_.options.precision;
  const int64_t sum_bytes = bytes_of(sum_type(precision));
  const int64_t type_bytes = bytes_of(bucket.type);
  const BucketElements elements = elements_on(schedule_, static_cast<int>(index), process);
  BucketSizes sizes{.own = elements.share * sum_bytes};
  for (ExchangeKind kind : kExchangeKinds) {
    const int64_t wire_bytes = bytes_of(Exchange(schedule_, static_cast<int>(index), kind).type());
    sizes.buffers[static_cast<size_t>(kind)] = {.sent = elements.of(kind).sent * wire_bytes,
                                                .received = elements.of(kind).received * wire_bytes};
  }
  for (size_t s = 0; s < bucket.segments.size(); ++s) {
    const Segment& segment = bucket.segments[s];
    const int64_t strided = strided_elements_of_[index][s];
    if (strided == 0 || !segment.is_read_by(process)) continue;
    sizes.unpacked += segment.elements * type_bytes;
    if (segment.is_held_by(process) && !schedule_.accumulates()) sizes.strided += strided * type_bytes;
  }
  if (schedule_.accumulates()) sizes.accumulator = elements.held * sum_bytes;
  if (!schedule_.options.shard) sizes.full_gradient = elements.held * type_bytes;
  if (!has_master_values(bucket.type, precision)) sizes.updated = elements.updated * sum_bytes;
  return sizes;
}

std::vector<BucketSizes> StepSizes::buckets_on(int process) const {
  std::vector<BucketSizes> sizes;
  for (size_t b = 0; b < schedule_.buckets.size(); ++b)
    sizes.push_back(bucket_on(process, b));
  return sizes;
}

double StepSizes::bytes_a_sample(const ActivationSize& saved) const {
  return saved.elements * static_cast<double>(bytes_of(compute_type(schedule_.options.precision))) +
         saved.bytes;
}

SlotSizes StepSizes::slot_of(int worker) const {
  SlotSizes sizes;
  sizes.gradients = gradient_bytes(plan_, schedule_.options.precision, worker);
  sizes.stem_saved = bytes_a_sample(plan_.layout.stem_saved);
  for (int b = 0; b < static_cast<int>(plan_.layout.branches.size()); ++b) {
    const double computed = bytes_a_sample(plan_.branch_saved(worker, b));
    const double saved = checkpoints_
                             ? bytes_a_sample(plan_.branch_saved(worker, b, /*checkpoint_activations=*/true))
                             : computed;
    sizes.saved.push_back(saved + bytes_a_sample(plan_.layout.branches[b].shared_saved));
    sizes.recomputed.push_back(computed - saved);
    sizes.workspace.push_back(bytes_a_sample(plan_.branch_workspace(worker, b)) + sizes.recomputed.back());
  }
  return sizes;
}

}  // namespace sdp
