// Gradients to those who update.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "engine/bucket_state.h"
#include "engine/finite.h"
#include "engine/flat_copies.h"
#include "memory/allocations.h"

namespace sdp {
namespace {

/// Elements [begin, begin + elements) of a segment, of which `pieces` has the flat pieces by parameter.
void copy_range(FlatCopies& copies, Cursor& to, const Segment& segment,
                const std::map<int, at::Tensor>& pieces, int64_t begin, int64_t elements) {
  for (const PieceRange& range : piece_ranges(segment, begin, elements)) {
    const int64_t size = range.end - range.begin;
    copies.add(to.next(size), pieces.at(range.parameter).narrow(0, range.begin, size));
  }
}

}  // namespace

std::map<int, at::Tensor> Engine::flat_gradients(int bucket, int segment_index) {
  const BucketState& state = states_[bucket];
  const Segment& segment = schedule_.buckets[bucket].segments[segment_index];
  std::map<int, at::Tensor> pieces;
  for (const Piece& piece : segment.pieces)
    pieces[piece.parameter] =
        schedule_.accumulates()
            ? state.accumulator.narrow(0, state.held_offsets[segment_index] + piece.offset, piece.elements)
            : store_.piece_gradient(0, piece.parameter, segment.unit);
  return pieces;
}

/// Buckets are packed from the last to the first: once a parameter's first piece is packed, all of them are.
void Engine::release_packed(int bucket) {
  states_[bucket].accumulator = at::Tensor();
  if (schedule_.accumulates()) return;
  for (int parameter : bucket_parameters_[bucket].first_of)
    store_.release_gradients(0, parameter);
}

void Engine::begin_reduce(int bucket_index) {
  const at::NoGradGuard no_grad;
  const PhaseScope phase(comm_, "reduce");
  if (reducing_.size() == kMostInFlight) {
    finish_reduce(reducing_.front());
    reducing_.pop_front();
  }
  const MemoryScope scope(MemoryKind::kBuckets);
  const Bucket& bucket = schedule_.buckets[bucket_index];
  BucketState& state = states_[bucket_index];
  const int me = comm_.rank();
  if (schedule_.accumulates() && !state.accumulator.defined()) state.allocate_accumulator();
  std::vector<std::map<int, at::Tensor>> gradients(bucket.segments.size());
  for (size_t r = 0; r < bucket.segments.size(); ++r)
    if (bucket.segments[r].is_held_by(me)) gradients[r] = flat_gradients(bucket_index, static_cast<int>(r));

  InFlight flight = prepare(bucket_index, schedule_.wire_type(bucket),
                            [&](int from, int to) { return bucket.reduce_elements(from, to); });
  FlatCopies copies;
  Cursor send(flight.send);
  for (int other = 0; other < comm_.size(); ++other) {
    if (other == me) continue;
    for (size_t r = 0; r < bucket.segments.size(); ++r)
      if (bucket.segments[r].is_held_by(me))
        copy_range(copies, send, bucket.segments[r], gradients[r], bucket.segments[r].share_begin(other),
                   bucket.segments[r].share_elements(other));
  }
  flight.own = at::empty({state.share_elements}, state.sum_options);
  Cursor own(flight.own);
  for (const SegmentView& share : state.shares)
    copy_range(copies, own, bucket.segments[share.segment], gradients[share.segment], share.begin,
               share.elements);
  copies.run();

  gradients.clear();
  release_packed(bucket_index);
  send_off(flight, reduce_clock_);
  reducing_.push_back(std::move(flight));
}

void Engine::finish_reduce(InFlight& flight) {
  const MemoryScope scope(MemoryKind::kGradients);
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  BucketState& state = states_[flight.bucket];
  const int me = comm_.rank();
  reduce_clock_.wait(std::move(flight.start), flight.pending);
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

void Engine::reduce() {
  const at::NoGradGuard no_grad;
  const PhaseScope phase(comm_, "reduce");
  if (pass_.missing.empty()) throw std::logic_error("reduce without a backward pass");
  if (pass_.slot >= 0) throw std::logic_error("reduce during a backward pass");
  while (next_reduce_ >= 0)
    begin_reduce(next_reduce_--);
  for (; !reducing_.empty(); reducing_.pop_front())
    finish_reduce(reducing_.front());
  pass_ = {};
  next_reduce_ = static_cast<int>(states_.size()) - 1;
  if (optimizer_.clip_norm > 0) clip();
  if (!schedule_.options.shard) spread_gradients();
}

bool Engine::gradients_are_finite() const {
  std::vector<at::Tensor> gradients;
  for (const BucketState& state : states_)
    gradients.push_back(state.gradient_full.defined() ? state.gradient_full : state.gradient_share);
  return !first_not_finite(gradients);
}

void Engine::discard_gradients() {
  for (BucketState& state : states_) {
    state.gradient_share = at::Tensor();
    state.gradient_full = at::Tensor();
  }
}

void Engine::clip() {
  at::Tensor squares = at::zeros(
      {1}, at::TensorOptions(scalar_type(sum_type(schedule_.options.precision))).device(comm_.device()));
  for (const BucketState& state : states_)
    squares.add_(state.gradient_share.square().sum());
  comm_.all_reduce_sum(squares);
  gradient_norm_ = squares.sqrt();
  const at::Tensor factor = (optimizer_.clip_norm / (gradient_norm_ + 1e-6)).clamp_max(1);
  for (BucketState& state : states_)
    state.gradient_share.mul_(factor);
}

}  // namespace sdp
