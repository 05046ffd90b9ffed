#include "engine/bucket_state.h"

#include <ATen/ATen.h>

#include "memory/allocations.h"

namespace sdp {

Engine::BucketState Engine::BucketState::make(const Schedule& schedule, int bucket_index, int process,
                                              int moment_count, const at::TensorOptions& sum_options) {
  const Bucket& bucket = schedule.buckets[bucket_index];
  BucketState state;
  state.sum_options = sum_options;
  state.elements = elements_on(schedule, bucket_index, process);
  int64_t held = 0;
  int64_t shared = 0;
  for (int r = 0; r < static_cast<int>(bucket.segments.size()); ++r) {
    const Segment& segment = bucket.segments[r];
    const bool is_held = segment.is_held_by(process);
    const SegmentView whole{
        .segment = r, .begin = 0, .elements = is_held ? segment.elements : 0, .offset = held};
    const SegmentView share{.segment = r,
                            .begin = segment.share_begin(process),
                            .elements = segment.share_elements(process),
                            .offset = shared};
    state.held_offsets.push_back(is_held ? held : -1);
    state.share_offsets.push_back(is_held ? shared : -1);
    held += whole.elements;
    shared += share.elements;
    if (share.elements > 0) state.shares.push_back(share);
    if (is_held && !schedule.options.shard) state.segments.push_back(whole);
  }
  if (schedule.options.shard) state.segments = state.shares;

  const MemoryScope scope(MemoryKind::kOptimizer);
  for (int m = 0; m < moment_count; ++m)
    state.moments.push_back(at::zeros({state.elements.updated}, sum_options));
  if (has_master_values(bucket.type, schedule.options.precision))
    state.master = at::empty({state.elements.updated}, sum_options);
  return state;
}

void Engine::BucketState::allocate_accumulator() {
  accumulator = at::zeros({elements.held}, sum_options);
}

UpdateTensors Engine::BucketState::update_tensors() const {
  UpdateTensors tensors{.values = places, .gradients = gradients};
  if (places.empty()) tensors.values = {updated};
  if (gradient_full.defined()) tensors.gradients = {gradient_full.to(sum_options)};
  std::vector<int64_t> sizes;
  for (const at::Tensor& values : tensors.values)
    sizes.push_back(values.numel());
  if (tensors.gradients.size() != sizes.size())
    tensors.gradients = tensors.gradients.at(0).split_with_sizes(sizes);
  for (const at::Tensor& moment : moments)
    tensors.state.push_back(moment.split_with_sizes(sizes));
  return tensors;
}

}  // namespace sdp
