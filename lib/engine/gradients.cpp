// Accumulates gradients as autograd produces them, and reduces them bucket by bucket while the backward pass
// continues: sends each share to the holder that updates it.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/bucket_state.h"
#include "engine/checks.h"
#include "engine/flat_copies.h"
#include "memory/allocations.h"

namespace sdp {
namespace {

/// Adds copies of elements [begin, begin + elements) of a segment. `pieces` has the segment's flat pieces by
/// parameter.
void copy_range(FlatCopies& copies, Cursor& to, const Segment& segment,
                const std::map<int, at::Tensor>& pieces, int64_t begin, int64_t elements) {
  for (const PieceRange& range : piece_ranges(segment, begin, elements)) {
    const int64_t size = range.end - range.begin;
    copies.add(to.next(size), pieces.at(range.parameter).narrow(0, range.begin, size));
  }
}

/// On a GPU in one pass. On a CPU ATen's norm adds one element after another, its sum in a tree, which is
/// more accurate.
at::Tensor sum_of_squares(const at::Tensor& x) {
  return x.is_cuda() ? at::linalg_vector_norm(x).square_() : x.square().sum();
}

}  // namespace

/// Called by autograd when a leaf's gradient is complete. On CUDA the call comes from one of autograd's
/// threads, while the thread that started the pass waits.
class Engine::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Engine& engine, int slot, int parameter) : engine_(engine), slot_(slot), parameter_(parameter) {}
  void operator()(const at::Tensor& leaf) override {
    book(leaf.grad(), MemoryKind::kGradients);
    engine_.on_gradient(slot_, parameter_);
  }

 private:
  Engine& engine_;
  const int slot_;
  const int parameter_;
};

void Engine::add_hooks() {
  for (int s = 0; s < static_cast<int>(store_.slots().size()); ++s)
    for (int p : store_.owned_parameters(s))
      torch::autograd::impl::set_post_acc_grad_hooks(store_.leaf(s, p), std::make_unique<Hook>(*this, s, p));
}

void Engine::begin_backward(int local_slot, bool last) {
  if (slot_ >= 0) throw std::logic_error("begin_backward during another backward pass");
  if (order_.is_reducing()) run(order_.finish_reducing());  // of the previous micro-batch
  slot_ = local_slot;
  order_.begin_backward(store_.owned_parameters(local_slot), last);
}

/// A pass that runs parts of the graph separately may add to a leaf's gradient several times, but not after
/// the gradient has been sent.
void Engine::on_gradient(int local_slot, int parameter) {
  if (!schedule_.options.release_gradients || local_slot != slot_) return;
  const ExchangeEvents events = order_.gradient_came(parameter);
  if (schedule_.accumulates()) accumulate(parameter);
  run(events);
}

/// Adds the slot's gradient of the parameter to the buffers of the sum type, and frees it.
void Engine::accumulate(int parameter) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryKind::kGradients);
  const int worker = store_.slots()[slot_].worker;
  for (int b : index_.buckets_of[parameter]) {
    BucketState& state = states_[b];
    if (!state.accumulator.defined()) state.allocate_accumulator();
    const std::vector<Segment>& segments = schedule_.buckets[b].segments;
    for (size_t r = 0; r < segments.size(); ++r) {
      if (plan_.holding(worker, segments[r].unit) != Holding::kOwned) continue;
      for (const Piece& piece : segments[r].pieces)
        if (piece.parameter == parameter)
          state.accumulator.narrow(0, state.held_offsets[r] + piece.offset, piece.elements)
              .add_(store_.piece_gradient(slot_, parameter, segments[r].unit));
    }
  }
  store_.release_gradients(slot_, parameter);
}

void Engine::end_backward() {
  if (schedule_.accumulates())
    for (int parameter : store_.owned_parameters(slot_))
      if (!order_.has_come(parameter) && store_.leaf(slot_, parameter).grad().defined())
        accumulate(parameter);
  slot_ = -1;
}

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

/// Buckets are packed from the last to the first, so once a parameter's first piece is packed, all its pieces
/// are.
void Engine::release_packed(int bucket) {
  states_[bucket].accumulator = at::Tensor();
  if (schedule_.accumulates()) return;
  for (int parameter : index_.parameters_of[bucket].first_of)
    store_.release_gradients(0, parameter);
}

Engine::InFlight Engine::begin_reduce(int bucket_index) {
  const MemoryScope scope(MemoryKind::kBuckets);
  BucketState& state = states_[bucket_index];
  if (schedule_.accumulates() && !state.accumulator.defined()) state.allocate_accumulator();
  InFlight flight = prepare(bucket_index, ExchangeKind::kReduceGradients);
  if (state.elements.is_alone && schedule_.accumulates())
    flight.own = {state.accumulator};
  else if (!state.places.empty() && state.elements.has_one_summand)
    for_each_state_range(bucket_index, /*only_own_share=*/false, [&](const StateRange& range, int64_t) {
      flight.own.push_back(store_.piece_gradient(/*local_slot=*/0, range.parameter, range.unit));
    });
  else
    pack_gradients(flight);
  release_packed(bucket_index);
  if (!state.elements.is_alone) send_off(flight);
  return flight;
}

void Engine::pack_gradients(InFlight& flight) {
  const Bucket& bucket = schedule_.buckets[flight.bucket];
  const BucketState& state = states_[flight.bucket];
  const int me = comm_.rank();
  std::vector<std::map<int, at::Tensor>> gradients(bucket.segments.size());
  for (size_t r = 0; r < bucket.segments.size(); ++r)
    if (bucket.segments[r].is_held_by(me)) gradients[r] = flat_gradients(flight.bucket, static_cast<int>(r));

  const Exchange exchange(schedule_, flight.bucket, flight.kind);
  FlatCopies copies;
  Cursor send(flight.send);
  for (int other = 0; other < comm_.size(); ++other)
    exchange.for_each_range(me, other, [&](size_t r, int64_t begin, int64_t elements) {
      copy_range(copies, send, bucket.segments[r], gradients[r], begin, elements);
    });
  flight.own = {at::empty({state.elements.share}, state.sum_options)};
  Cursor own(flight.own.front());
  for (const SegmentView& share : state.shares)
    copy_range(copies, own, bucket.segments[share.segment], gradients[share.segment], share.begin,
               share.elements);
  copies.run();
}

void Engine::finish_reduce(InFlight& flight) {
  const MemoryScope scope(MemoryKind::kGradients);
  BucketState& state = states_[flight.bucket];
  flight.send = at::Tensor();
  add_received(flight);
  if (++state.reductions < schedule_.reductions_per_step()) return;
  state.reductions = 0;
  divide_by_summands(flight.bucket);
}

/// Sums in process order, which is worker order, not in order of arrival: the result must not depend on
/// timing.
void Engine::add_received(InFlight& flight) {
  BucketState& state = states_[flight.bucket];
  const int me = comm_.rank();
  const bool begins_with_own = state.reductions == 0 && state.elements.begins_sum;
  if (begins_with_own) {
    state.gradients = std::move(flight.own);
    for (const at::Tensor& gradient : state.gradients)
      book(gradient, MemoryKind::kGradients);
  } else if (state.reductions == 0) {
    state.gradients = {at::zeros({state.elements.share}, state.sum_options)};
  }
  const Exchange exchange(schedule_, flight.bucket, flight.kind);
  Cursor received(flight.receive);
  for (int other = 0; other < comm_.size(); ++other) {
    if (other == me && !begins_with_own) state.gradient_share().add_(flight.own.front());
    exchange.for_each_range(other, me, [&](size_t r, int64_t, int64_t elements) {
      state.gradient_share().narrow(0, state.share_offsets[r], elements).add_(received.next(elements));
    });
  }
}

/// Consecutive shares with the same number of summands are divided at once.
void Engine::divide_by_summands(int bucket) {
  const BucketState& state = states_[bucket];
  const auto summands = [&](const SegmentView& share) {
    return schedule_.buckets[bucket].segments[share.segment].owner_slots * schedule_.options.accumulate_steps;
  };
  for (auto first = state.shares.begin(); first != state.shares.end();) {
    const auto next = std::find_if(first, state.shares.end(), [&](const SegmentView& share) {
      return summands(share) != summands(*first);
    });
    const int64_t end = next == state.shares.end() ? state.elements.share : next->offset;
    if (summands(*first) > 1)
      state.gradient_share()
          .narrow(0, first->offset, end - first->offset)
          .div_(static_cast<double>(summands(*first)));
    first = next;
  }
}

void Engine::sum_gradients() {
  const at::NoGradGuard no_grad;
  if (slot_ >= 0) throw std::logic_error("sum_gradients() during a backward pass");
  run(order_.finish_reducing());
  has_sums_ = true;
}

Engine::Sums Engine::take_sums() {
  Sums sums;
  for (BucketState& state : states_)
    sums.push_back(std::exchange(state.gradients, {}));
  has_sums_ = false;
  return sums;
}

void Engine::set_sums(const Sums& sums) {
  for (size_t b = 0; b < states_.size(); ++b)
    states_[b].gradients = sums.at(b);
  has_sums_ = true;
}

void Engine::reduce(bool measures_norm) {
  const at::NoGradGuard no_grad;
  if (!has_sums_) sum_gradients();
  has_sums_ = false;
  if (measures_norm || optimizer_.clip_norm > 0) measure_norm();
  if (optimizer_.clip_norm > 0) clip();
  if (!schedule_.options.shard) run(order_.gather_gradients());
}

at::Tensor Engine::gradients_are_finite() const {
  std::vector<at::Tensor> gradients;
  for (const BucketState& state : states_) {
    if (state.gradient_full.defined())
      gradients.push_back(state.gradient_full);
    else
      gradients.insert(gradients.end(), state.gradients.begin(), state.gradients.end());
  }
  return are_finite(gradients).all();
}

void Engine::discard_gradients() {
  for (BucketState& state : states_) {
    state.gradients.clear();
    state.gradient_full = at::Tensor();
  }
}

void Engine::measure_norm() {
  const PhaseScope phase(comm_, "reduce");
  at::Tensor squares = at::zeros(
      {1}, at::TensorOptions(scalar_type(sum_type(schedule_.options.precision))).device(comm_.device()));
  for (const BucketState& state : states_)
    for (const at::Tensor& gradient : state.gradients)
      squares.add_(sum_of_squares(gradient));
  comm_.all_reduce_sum(squares);
  gradient_norm_ = squares.sqrt();
}

void Engine::clip() {
  const at::Tensor factor = (optimizer_.clip_norm / (gradient_norm_ + 1e-6)).clamp_max(1);
  for (BucketState& state : states_)
    at::_foreach_mul_(state.gradients, factor.squeeze());
}

}  // namespace sdp
