// The engine's two exchanges. Splits follow from the schedule alone, so that every process knows what every
// other sends; what a process keeps to itself is not sent.

#include <ATen/ATen.h>

#include "engine/bucket_state.h"

namespace sdp {
namespace {

int64_t total(const std::vector<int64_t>& splits) {
  int64_t sum = 0;
  for (int64_t split : splits)
    sum += split;
  return sum;
}

/// Writes consecutive ranges of a flat buffer.
class Cursor {
 public:
  explicit Cursor(at::Tensor buffer) : buffer_(std::move(buffer)) {}
  at::Tensor next(int64_t elements) {
    at::Tensor range = buffer_.narrow(0, at_, elements);
    at_ += elements;
    return range;
  }

 private:
  at::Tensor buffer_;
  int64_t at_ = 0;
};

}  // namespace

template <class Elements>
Engine::InFlight Engine::prepare(int bucket, Elements elements) const {
  InFlight flight;
  flight.bucket = bucket;
  for (int other = 0; other < comm_.size(); ++other) {
    flight.send_splits.push_back(elements(comm_.rank(), other));
    flight.receive_splits.push_back(elements(other, comm_.rank()));
  }
  const at::TensorOptions wire =
      at::TensorOptions(scalar_type(schedule_.buckets[bucket].type)).device(comm_.device());
  flight.send = at::empty({total(flight.send_splits)}, wire);
  flight.receive = at::empty({total(flight.receive_splits)}, wire);
  return flight;
}

void Engine::send_off(InFlight& flight) {
  flight.pending = comm_.all_to_all(flight.receive, flight.send, flight.receive_splits, flight.send_splits);
}

Engine::InFlight Engine::begin_reduce(int bucket_index) {
  const Bucket& bucket = schedule_.buckets[bucket_index];
  BucketState& state = states_[bucket_index];
  const int me = comm_.rank();
  std::vector<at::Tensor> gradients(bucket.segments.size());
  for (size_t r = 0; r < bucket.segments.size(); ++r)
    if (bucket.segments[r].is_held_by(me))
      gradients[r] = absorbed_gradients(bucket_index, static_cast<int>(r));

  InFlight flight = prepare(bucket_index, [&](int from, int to) { return bucket.reduce_elements(from, to); });
  Cursor send(flight.send);
  for (int other = 0; other < comm_.size(); ++other) {
    if (other == me) continue;
    for (size_t r = 0; r < bucket.segments.size(); ++r) {
      const int64_t elements = gradients[r].defined() ? bucket.segments[r].share_elements(other) : 0;
      if (elements > 0)
        send.next(elements).copy_(gradients[r].narrow(0, bucket.segments[r].share_begin(other), elements));
    }
  }
  flight.own = at::empty({state.share_elements}, state.sum_options);
  Cursor own(flight.own);
  for (const SegmentView& share : state.shares)
    own.next(share.elements).copy_(gradients[share.segment].narrow(0, share.begin, share.elements));

  gradients.clear();
  release_packed(bucket_index);
  send_off(flight);
  return flight;
}

void Engine::finish_reduce(InFlight& flight) {
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  BucketState& state = states_[flight.bucket];
  const int me = comm_.rank();
  flight.pending.wait();
  flight.send = at::Tensor();
  // Summed in process order, which is worker order, whichever message came first: the result does not depend
  // on timing.
  state.gradient_share = at::zeros({state.share_elements}, state.sum_options);
  Cursor received(flight.receive);
  for (int other = 0; other < comm_.size(); ++other) {
    for (const SegmentView& share : state.shares) {
      if (!bucket.segments[share.segment].is_held_by(other)) continue;
      at::Tensor sum = state.gradient_share.narrow(0, share.offset, share.elements);
      sum.add_(other == me ? flight.own.narrow(0, share.offset, share.elements)
                           : received.next(share.elements));
    }
  }
  for (const SegmentView& share : state.shares) {
    const int64_t summands = bucket.segments[share.segment].owner_slots * schedule_.options.accumulate_steps;
    state.gradient_share.narrow(0, share.offset, share.elements).div_(static_cast<double>(summands));
  }
}

Audience Engine::audience_of(Spread what) const {
  if (what == Spread::kGradients) return Audience::kHolders;
  return schedule_.options.shard ? Audience::kReaders : Audience::kOtherReaders;
}

Engine::InFlight Engine::begin_spread(int bucket_index, Spread what) {
  const Bucket& bucket = schedule_.buckets[bucket_index];
  BucketState& state = states_[bucket_index];
  const int me = comm_.rank();
  const Audience audience = audience_of(what);
  InFlight flight =
      prepare(bucket_index, [&](int from, int to) { return bucket.spread_elements(from, to, audience); });
  const auto own_share = [&](const SegmentView& share) {
    if (what == Spread::kGradients) return state.gradient_share.narrow(0, share.offset, share.elements);
    const int64_t at_updated =
        schedule_.options.shard ? share.offset : state.held_offsets[share.segment] + share.begin;
    return state.updated.narrow(0, at_updated, share.elements);
  };
  Cursor send(flight.send);
  for (int other = 0; other < comm_.size(); ++other) {
    if (other == me) continue;
    for (const SegmentView& share : state.shares)
      if (bucket.segments[share.segment].is_for(other, audience))
        send.next(share.elements).copy_(own_share(share));
  }
  if (what == Spread::kGradients) {
    state.gradient_full = at::empty({state.held_elements}, state.sum_options);
    // Rounded as the other holders receive it, so that all of them apply the same bits.
    for (const SegmentView& share : state.shares)
      state.gradient_full.narrow(0, state.held_offsets[share.segment] + share.begin, share.elements)
          .copy_(own_share(share).to(scalar_type(bucket.type)));
  }
  // Without shard the holders have the new values; under forward masking nobody else waits for them.
  if (audience != Audience::kOtherReaders || plan_.masking == Masking::kBackward) send_off(flight);
  return flight;
}

void Engine::finish_gradients(InFlight& flight) {
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  BucketState& state = states_[flight.bucket];
  Cursor received(flight.receive);
  for (int other = 0; other < comm_.size(); ++other) {
    if (other == comm_.rank()) continue;
    for (size_t r = 0; r < bucket.segments.size(); ++r) {
      const Segment& segment = bucket.segments[r];
      const int64_t elements = segment.share_elements(other);
      if (state.held_offsets[r] >= 0 && elements > 0)
        state.gradient_full.narrow(0, state.held_offsets[r] + segment.share_begin(other), elements)
            .copy_(received.next(elements));
    }
  }
}

/// Puts every segment that this process reads together, from what it updated and what it received.
void Engine::finish_values(InFlight& flight) {
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  BucketState& state = states_[flight.bucket];
  const int me = comm_.rank();
  const Audience audience = audience_of(Spread::kValues);
  const at::TensorOptions options = at::TensorOptions(scalar_type(bucket.type)).device(comm_.device());
  std::vector<at::Tensor> values(bucket.segments.size());
  for (size_t r = 0; r < values.size(); ++r)
    if (bucket.segments[r].is_read_by(me)) values[r] = at::empty({bucket.segments[r].elements}, options);
  for (const SegmentView& view : state.segments)
    values[view.segment]
        .narrow(0, view.begin, view.elements)
        .copy_(state.updated.narrow(0, view.offset, view.elements));
  Cursor received(flight.receive);
  for (int other = 0; other < comm_.size(); ++other) {
    if (other == me) continue;
    for (size_t r = 0; r < values.size(); ++r) {
      const Segment& segment = bucket.segments[r];
      const int64_t elements = segment.share_elements(other);
      if (segment.is_for(me, audience) && elements > 0)
        values[r].narrow(0, segment.share_begin(other), elements).copy_(received.next(elements));
    }
  }
  for (size_t r = 0; r < values.size(); ++r)
    if (values[r].defined()) store_.write_segment(bucket.segments[r], values[r]);
}

void Engine::finish_spread(InFlight& flight, Spread what) {
  flight.pending.wait();
  if (what == Spread::kGradients) {
    finish_gradients(flight);
  } else {
    finish_values(flight);
  }
}

void Engine::spread_all(Spread what) {
  std::optional<InFlight> previous;
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    InFlight current = begin_spread(b, what);
    if (previous) finish_spread(*previous, what);
    previous = std::move(current);
  }
  if (previous) finish_spread(*previous, what);
}

}  // namespace sdp
