// Begins and ends exchanges in the order that subnet/exchange.h determines; among them the all-gathers, which
// send averaged gradients or updated values to all processes that need them.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "engine/bucket_state.h"
#include "engine/flat_copies.h"
#include "memory/allocations.h"

namespace sdp {

void Engine::run(const ExchangeEvents& events) {
  const at::NoGradGuard no_grad;
  for (const ExchangeEvent& event : events) {
    const PhaseScope phase(comm_, event.kind == ExchangeKind::kGatherValues ? "gather" : "reduce");
    if (event.what == ExchangeEvent::What::kBegin) {
      in_flight_.push_back(event.kind == ExchangeKind::kReduceGradients
                               ? begin_reduce(event.bucket)
                               : begin_gather(event.bucket, event.kind));
      continue;
    }
    const auto flight = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& candidate) {
      return candidate.kind == event.kind && candidate.bucket == event.bucket;
    });
    InFlight ended = std::move(*flight);
    in_flight_.erase(flight);
    end(std::move(ended));
  }
}

void Engine::end(InFlight flight) {
  clock_of(flight.kind).wait(std::move(flight.start), flight.pending);
  switch (flight.kind) {
    case ExchangeKind::kReduceGradients:
      return finish_reduce(flight);
    case ExchangeKind::kGatherGradients:
      return finish_gradients(flight);
    case ExchangeKind::kGatherValues:
      return finish_values(flight);
  }
}

ExchangeClock& Engine::clock_of(ExchangeKind kind) {
  return kind == ExchangeKind::kGatherValues ? gather_clock_ : reduce_clock_;
}

Engine::InFlight Engine::prepare(int bucket, ExchangeKind kind) const {
  const Exchange exchange(schedule_, bucket, kind);
  InFlight flight;
  flight.bucket = bucket;
  flight.kind = kind;
  int64_t sent = 0;
  int64_t received = 0;
  for (int other = 0; other < comm_.size(); ++other) {
    sent += flight.send_splits.emplace_back(exchange.elements(comm_.rank(), other));
    received += flight.receive_splits.emplace_back(exchange.elements(other, comm_.rank()));
  }
  const at::TensorOptions wire = at::TensorOptions(scalar_type(exchange.type())).device(comm_.device());
  flight.send = at::empty({sent}, wire);
  flight.receive = at::empty({received}, wire);
  return flight;
}

void Engine::send_off(InFlight& flight) {
  flight.start = clock_of(flight.kind).start(static_cast<int64_t>(flight.send.nbytes()));
  flight.pending = comm_.all_to_all(flight.receive, flight.send, flight.receive_splits, flight.send_splits);
}

Engine::InFlight Engine::begin_gather(int bucket_index, ExchangeKind kind) {
  const MemoryScope scope(MemoryKind::kBuckets);
  BucketState& state = states_[bucket_index];
  const bool of_gradients = kind == ExchangeKind::kGatherGradients;
  InFlight flight = prepare(bucket_index, kind);
  const Exchange exchange(schedule_, bucket_index, kind);
  FlatCopies copies;
  const auto copy_share = [&](size_t r, int64_t begin, const at::Tensor& to) {
    const int64_t in_share = state.share_offsets[r], in_held = state.held_offsets[r] + begin;
    if (of_gradients)
      copies.add(to, state.gradient_share().narrow(0, in_share, to.numel()));
    else if (!state.places.empty())
      store_.add_segment_reads(copies, schedule_.buckets[bucket_index].segments[r], begin, to);
    else
      copies.add(to, state.updated.narrow(0, schedule_.options.shard ? in_share : in_held, to.numel()));
  };
  Cursor send(flight.send);
  for (int other = 0; other < comm_.size(); ++other)
    exchange.for_each_range(comm_.rank(), other, [&](size_t r, int64_t begin, int64_t elements) {
      copy_share(r, begin, send.next(elements));
    });
  copies.run();
  if (exchange.has_peers()) send_off(flight);
  return flight;
}

/// Calls `use(segment, begin, values)` for each share that another process has sent.
template <class Use>
void Engine::for_each_received(const InFlight& flight, Use use) const {
  const Exchange exchange(schedule_, flight.bucket, flight.kind);
  Cursor received(flight.receive);
  for (int other = 0; other < comm_.size(); ++other)
    exchange.for_each_range(other, comm_.rank(), [&](size_t r, int64_t begin, int64_t elements) {
      use(r, begin, received.next(elements));
    });
}

/// Assembles the averaged gradient of all held segments from this process's share and the received shares,
/// where gradients are exchanged.
void Engine::finish_gradients(InFlight& flight) {
  const MemoryScope scope(MemoryKind::kGradients);
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  BucketState& state = states_[flight.bucket];
  if (state.elements.is_alone) return;
  state.gradient_full = at::empty({state.elements.held}, state.sum_options.dtype(scalar_type(bucket.type)));
  const auto part = [&](int64_t segment, int64_t begin, int64_t elements) {
    return state.gradient_full.narrow(0, state.held_offsets[segment] + begin, elements);
  };
  FlatCopies copies;
  // Round this process's share to the wire type, in which the other holders receive it, so that all of them
  // apply the same bits.
  for (const SegmentView& share : state.shares)
    copies.add(part(share.segment, share.begin, share.elements),
               state.gradient_share()
                   .narrow(0, share.offset, share.elements)
                   .to(scalar_type(schedule_.wire_type(bucket))));
  for_each_received(flight, [&](size_t segment, int64_t begin, const at::Tensor& values) {
    copies.add(part(static_cast<int64_t>(segment), begin, values.numel()), values);
  });
  copies.run();
  state.gradients.clear();
}

void Engine::gather_values() {
  run(order_.begin_gathering());
}

void Engine::await_values(int branch) {
  run(order_.reach(branch));
}

void Engine::await_all_values() {
  await_values(static_cast<int>(plan_.layout.branches.size()));
}

/// Sets every segment that this process reads from the values it updated and the values it received. A
/// segment that is not stored contiguously is assembled first.
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
  if (state.places.empty())
    for (const SegmentView& view : state.segments)
      set(static_cast<size_t>(view.segment), view.begin, state.updated.narrow(0, view.offset, view.elements));
  for_each_received(flight, set);
  copies.run();
  FlatCopies unpacked;
  for (size_t r = 0; r < whole.size(); ++r)
    if (whole[r].defined()) store_.add_segment_writes(unpacked, bucket.segments[r], whole[r]);
  unpacked.run();
  state.updated = at::Tensor();
}

}  // namespace sdp
