#include "engine/bucket_state.h"

#include <ATen/ATen.h>

namespace sdp {

Engine::BucketState Engine::BucketState::make(const Schedule& schedule, int bucket_index, int process,
                                              int moment_count, const at::TensorOptions& sum_options) {
  const Bucket& bucket = schedule.buckets[bucket_index];
  BucketState state;
  state.sum_options = sum_options;
  for (int r = 0; r < static_cast<int>(bucket.segments.size()); ++r) {
    const Segment& segment = bucket.segments[r];
    const bool held = segment.is_held_by(process);
    state.held_offsets.push_back(held ? state.held_elements : -1);
    if (!held) continue;
    const SegmentView whole{
        .segment = r, .begin = 0, .elements = segment.elements, .offset = state.held_elements};
    const SegmentView share{.segment = r,
                            .begin = segment.share_begin(process),
                            .elements = segment.share_elements(process),
                            .offset = state.share_elements};
    state.held_elements += segment.elements;
    state.share_elements += share.elements;
    if (share.elements > 0) state.shares.push_back(share);
    if (!schedule.options.shard) state.segments.push_back(whole);
  }
  if (schedule.options.shard) state.segments = state.shares;

  for (int m = 0; m < moment_count; ++m)
    state.moments.push_back(at::zeros({state.updated_elements()}, sum_options));
  if (bytes_of(bucket.type) < bytes_of(sum_type(schedule.options.precision)))
    state.master = at::empty({state.updated_elements()}, sum_options);
  return state;
}

int64_t Engine::BucketState::updated_elements() const {
  return segments.empty() ? 0 : segments.back().offset + segments.back().elements;
}

void Engine::BucketState::allocate_accumulator() {
  accumulator = at::zeros({held_elements}, sum_options);
}

}  // namespace sdp
