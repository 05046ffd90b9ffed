// What was updated, or averaged, to all who have it. Splits follow from the schedule alone, so that every
// process knows what every other sends; what a process keeps to itself is not sent.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "engine/bucket_state.h"
#include "engine/flat_copies.h"
#include "memory/allocations.h"

namespace sdp {

Audience Engine::audience_of(Spread what) const {
  if (what == Spread::kGradients) return Audience::kHolders;
  return schedule_.options.shard ? Audience::kReaders : Audience::kOtherReaders;
}

Engine::InFlight Engine::begin_spread(int bucket_index, Spread what) {
  const MemoryScope scope(MemoryKind::kBuckets);
  const Bucket& bucket = schedule_.buckets[bucket_index];
  BucketState& state = states_[bucket_index];
  const bool shard = schedule_.options.shard;
  const Audience audience = audience_of(what);
  InFlight flight =
      prepare(bucket_index, what == Spread::kGradients ? schedule_.wire_type(bucket) : bucket.type,
              [&](int from, int to) { return bucket.spread_elements(from, to, audience); });
  const auto own_share = [&](const SegmentView& share) {
    if (what == Spread::kGradients) return state.gradient_share.narrow(0, share.offset, share.elements);
    const int64_t at_updated = shard ? share.offset : state.held_offsets[share.segment] + share.begin;
    return state.updated.narrow(0, at_updated, share.elements);
  };
  FlatCopies copies;
  Cursor send(flight.send);
  for (int other = 0; other < comm_.size(); ++other) {
    if (other == comm_.rank()) continue;
    for (const SegmentView& share : state.shares)
      if (bucket.segments[share.segment].is_for(other, audience))
        copies.add(send.next(share.elements), own_share(share));
  }
  copies.run();
  // Without shard the holders have the new values; under forward masking nobody else waits for them.
  const bool somebody_waits = audience != Audience::kOtherReaders || plan_.masking == Masking::kBackward;
  if (somebody_waits) send_off(flight, what == Spread::kGradients ? reduce_clock_ : publish_clock_);
  return flight;
}

void Engine::spread_gradients() {
  std::deque<InFlight> flights;
  const auto finish_one = [&] {
    reduce_clock_.wait(std::move(flights.front().start), flights.front().pending);
    finish_gradients(flights.front());
    flights.pop_front();
  };
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    flights.push_back(begin_spread(b, Spread::kGradients));
    if (flights.size() == kMostInFlight) finish_one();
  }
  while (!flights.empty())
    finish_one();
}

/// Calls `use(segment, begin, values)` for each share that another process has sent.
template <class Use>
void Engine::for_each_received(const InFlight& flight, Spread what, Use use) const {
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  Cursor received(flight.receive);
  for (int other = 0; other < comm_.size(); ++other) {
    if (other == comm_.rank()) continue;
    for (size_t r = 0; r < bucket.segments.size(); ++r) {
      const Segment& segment = bucket.segments[r];
      const int64_t elements = segment.share_elements(other);
      if (segment.is_for(comm_.rank(), audience_of(what)) && elements > 0)
        use(r, segment.share_begin(other), received.next(elements));
    }
  }
}

/// Puts the averaged gradient of all that is held together, from the own share and from what came.
void Engine::finish_gradients(InFlight& flight) {
  const MemoryScope scope(MemoryKind::kGradients);
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  BucketState& state = states_[flight.bucket];
  state.gradient_full = at::empty({state.held_elements}, state.sum_options.dtype(scalar_type(bucket.type)));
  const auto part = [&](int64_t segment, int64_t begin, int64_t elements) {
    return state.gradient_full.narrow(0, state.held_offsets[segment] + begin, elements);
  };
  FlatCopies copies;
  // Rounded as the other holders receive it, so that all of them apply the same bits.
  for (const SegmentView& share : state.shares)
    copies.add(part(share.segment, share.begin, share.elements),
               state.gradient_share.narrow(0, share.offset, share.elements)
                   .to(scalar_type(schedule_.wire_type(bucket))));
  for_each_received(flight, Spread::kGradients, [&](size_t segment, int64_t begin, const at::Tensor& values) {
    copies.add(part(static_cast<int64_t>(segment), begin, values.numel()), values);
  });
  copies.run();
  state.gradient_share = at::Tensor();
}

void Engine::publish() {
  const at::NoGradGuard no_grad;
  const PhaseScope phase(comm_, "publish");
  next_publish_ = 0;
  begin_publishing();
}

void Engine::begin_publishing() {
  while (next_publish_ < static_cast<int>(states_.size()) && publishing_.size() < kMostInFlight)
    publishing_.push_back(begin_spread(next_publish_++, Spread::kValues));
}

void Engine::finish_publishing_one() {
  const PhaseScope phase(comm_, "publish");
  InFlight& flight = publishing_.front();
  publish_clock_.wait(std::move(flight.start), flight.pending);
  finish_values(flight);
  publishing_.pop_front();
  begin_publishing();
}

void Engine::await_values(int branch) {
  const at::NoGradGuard no_grad;
  while (!publishing_.empty() && bucket_parameters_[publishing_.front().bucket].needed_before <= branch)
    finish_publishing_one();
}

void Engine::await_all_values() {
  await_values(static_cast<int>(plan_.layout.branches.size()));
}

/// Sets every segment that this process reads, from what it updated and what it received. A segment that is
/// not stored in one stretch is put together first.
void Engine::finish_values(InFlight& flight) {
  const MemoryScope scope(MemoryKind::kBuckets);
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  BucketState& state = states_[flight.bucket];
  const int me = comm_.rank();
  const at::TensorOptions options = at::TensorOptions(scalar_type(bucket.type)).device(comm_.device());
  std::vector<at::Tensor> whole(bucket.segments.size());
  for (size_t r = 0; r < whole.size(); ++r)
    if (bucket.segments[r].is_read_by(me) && !store_.is_flat(bucket.segments[r]))
      whole[r] = at::empty({bucket.segments[r].elements}, options);
  FlatCopies copies;
  const auto set = [&](size_t segment, int64_t begin, const at::Tensor& values) {
    if (whole[segment].defined())
      copies.add(whole[segment].narrow(0, begin, values.numel()), values);
    else
      store_.add_range_writes(copies, bucket.segments[segment], begin, values);
  };
  for (const SegmentView& view : state.segments)
    set(static_cast<size_t>(view.segment), view.begin, state.updated.narrow(0, view.offset, view.elements));
  for_each_received(flight, Spread::kValues, set);
  copies.run();
  FlatCopies unpacked;
  for (size_t r = 0; r < whole.size(); ++r)
    if (whole[r].defined()) store_.add_segment_writes(unpacked, bucket.segments[r], whole[r]);
  unpacked.run();
  state.updated = at::Tensor();
}

}  // namespace sdp
