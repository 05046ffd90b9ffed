#include "forecast/step_sizes.h"

#include "forecast/accounting.h"
#include "subnet/storage.h"

namespace sdp {

StepSizes::StepSizes(const Schedule& schedule, StepCaptures& captures, int64_t convolution_workspace_bytes)
    : plan_(captures.plan()),
      schedule_(schedule),
      convolution_workspace_bytes_(convolution_workspace_bytes),
      captures_(captures),
      index_(index_buckets(plan_.layout, schedule)) {
  // As on a process that has several units of each branch.
  std::vector<bool> is_strided;  // by parameter
  for (const ParameterLayout& parameter : plan_.layout.parameters)
    is_strided.push_back(!is_contiguous(parameter, plan_.units_of(parameter).size()));
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

BucketSizes StepSizes::bucket_on(int process, size_t index, const std::vector<char>& scattered) const {
  const Bucket& bucket = schedule_.buckets[index];
  const Precision precision = schedule_.options.precision;
  const int64_t sum_bytes = bytes_of(sum_type(precision));
  const int64_t type_bytes = bytes_of(bucket.type);
  const BucketElements elements = elements_on(schedule_, static_cast<int>(index), process);
  const bool is_in_place = updates_in_place(schedule_, static_cast<int>(index), process, scattered);
  BucketSizes sizes{.own = elements.share * sum_bytes,
                    .is_alone = elements.is_alone,
                    .begins_sum = elements.begins_sum,
                    .keeps_gradients = is_in_place && elements.has_one_summand};
  if (sizes.keeps_gradients) sizes.own = 0;
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
  if (!schedule_.options.shard && !elements.is_alone) sizes.full_gradient = elements.held * type_bytes;
  if (!has_master_values(bucket.type, precision) && !is_in_place)
    sizes.updated = elements.updated * sum_bytes;
  return sizes;
}

std::vector<BucketSizes> StepSizes::buckets_on(int process) const {
  const std::vector<char> scattered = scattered_parameters(plan_, schedule_.placement.slots_of(process));
  std::vector<BucketSizes> sizes;
  for (size_t b = 0; b < schedule_.buckets.size(); ++b)
    sizes.push_back(bucket_on(process, b, scattered));
  return sizes;
}

SlotSizes StepSizes::slot_of(int worker) const {
  return {.gradients = gradient_bytes(plan_, schedule_.options.precision, worker),
          .capture = captures_.of(worker)};
}

}  // namespace sdp
