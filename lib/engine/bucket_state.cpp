#include "engine/bucket_state.h"

#include <ATen/ATen.h>

#include "memory/allocations.h"

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

  const MemoryScope scope(MemoryKind::kOptimizer);
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

at::Tensor Engine::BucketState::update_gradient() const {
  return gradient_full.defined() ? gradient_full.to(sum_options) : gradient_share;
}

Engine::InFlight Engine::prepare(int bucket, ElementType type,
                                 const std::function<int64_t(int from, int to)>& elements) const {
  InFlight flight;
  flight.bucket = bucket;
  int64_t sent = 0;
  int64_t received = 0;
  for (int other = 0; other < comm_.size(); ++other) {
    sent += flight.send_splits.emplace_back(elements(comm_.rank(), other));
    received += flight.receive_splits.emplace_back(elements(other, comm_.rank()));
  }
  const at::TensorOptions wire = at::TensorOptions(scalar_type(type)).device(comm_.device());
  flight.send = at::empty({sent}, wire);
  flight.receive = at::empty({received}, wire);
  return flight;
}

void Engine::send_off(InFlight& flight, ExchangeClock& clock) {
  flight.start = clock.start(static_cast<int64_t>(flight.send.nbytes()));
  flight.pending = comm_.all_to_all(flight.receive, flight.send, flight.receive_splits, flight.send_splits);
}

}  // namespace sdp
