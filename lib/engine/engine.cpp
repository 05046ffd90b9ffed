#include "engine/engine.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "engine/bucket_state.h"
#include "subnet/accounting.h"

namespace sdp {

Engine::Engine(const SubnetPlan& plan, const Schedule& schedule, const OptimizerSpec& optimizer,
               Communicator& comm)
    : plan_(plan),
      schedule_(schedule),
      optimizer_(optimizer),
      comm_(comm),
      store_(plan, schedule, comm.rank(), comm.device()),
      step_tensor_(at::zeros({}, at::TensorOptions(at::kFloat).device(comm.device()))) {
  if (comm.size() != schedule.placement.processes)
    throw std::logic_error("the schedule is made for another number of processes");
  const at::TensorOptions options =
      at::TensorOptions(scalar_type(sum_type(schedule.options.precision))).device(comm.device());
  const int moments = static_cast<int>(moment_names(optimizer).size());
  for (int b = 0; b < static_cast<int>(schedule.buckets.size()); ++b)
    states_.push_back(BucketState::make(schedule, b, comm.rank(), moments, options));
}

Engine::~Engine() = default;

void Engine::initialize(uint64_t seed) {
  store_.initialize(seed);
  const at::NoGradGuard no_grad;
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    if (!states_[b].master.defined()) continue;
    // Master values start as drawn, in fp32, not as the rounded values they were cast to.
    for (const SegmentView& view : states_[b].segments) {
      for (const PieceRange& range :
           piece_ranges(schedule_.buckets[b].segments[view.segment], view.begin, view.elements)) {
        const at::Tensor drawn = draw_parameter(plan_.layout.parameters[range.parameter], seed).reshape({-1});
        states_[b]
            .master.narrow(0, view.offset + range.offset, range.end - range.begin)
            .copy_(drawn.narrow(0, range.begin, range.end - range.begin));
      }
    }
  }
}

void Engine::absorb(int local_slot) {
  if (!schedule_.accumulates()) return;
  const at::NoGradGuard no_grad;
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    BucketState& state = states_[b];
    if (!state.accumulator.defined()) state.allocate_accumulator();
    for (int r = 0; r < static_cast<int>(schedule_.buckets[b].segments.size()); ++r) {
      const Segment& segment = schedule_.buckets[b].segments[r];
      if (plan_.holding(store_.slots()[local_slot].worker, segment.unit) != Holding::kOwned) continue;
      state.accumulator.narrow(0, state.held_offsets[r], segment.elements)
          .add_(store_.segment_gradients(local_slot, b, r));
      store_.release_gradients(local_slot, b, r);
    }
  }
}

at::Tensor Engine::absorbed_gradients(int bucket, int segment) {
  const BucketState& state = states_[bucket];
  if (!schedule_.accumulates()) return store_.segment_gradients(0, bucket, segment);
  if (!state.accumulator.defined()) throw std::logic_error("reduce without a backward pass");
  return state.accumulator.narrow(0, state.held_offsets[segment],
                                  schedule_.buckets[bucket].segments[segment].elements);
}

void Engine::release(int bucket, int segment) {
  if (!schedule_.accumulates()) store_.release_gradients(0, bucket, segment);
}

void Engine::reduce() {
  const at::NoGradGuard no_grad;
  // Two buckets are in flight at a time: one is packed while the other's exchange goes on. Deepest first, as
  // the backward pass produces them.
  std::optional<InFlight> previous;
  for (int b = static_cast<int>(states_.size()) - 1; b >= 0; --b) {
    InFlight current = begin_reduce(b);
    if (previous) finish_reduce(*previous);
    previous = std::move(current);
  }
  if (previous) finish_reduce(*previous);
  if (optimizer_.clip_norm > 0) clip();
  if (!schedule_.options.shard) spread_all(Spread::kGradients);
}

void Engine::clip() {
  at::Tensor squares = at::zeros(
      {1}, at::TensorOptions(scalar_type(sum_type(schedule_.options.precision))).device(comm_.device()));
  for (const BucketState& state : states_)
    squares.add_(state.gradient_part.square().sum());
  comm_.all_reduce_sum(squares);
  gradient_norm_ = squares.sqrt();
  const at::Tensor factor = (optimizer_.clip_norm / (gradient_norm_ + 1e-6)).clamp_max(1);
  for (BucketState& state : states_)
    state.gradient_part.mul_(factor);
}

UpdateTensors Engine::update_tensors(int bucket) {
  BucketState& state = states_[bucket];
  UpdateTensors tensors;
  tensors.moments.resize(state.moments.size());
  const auto add = [&](const at::Tensor& values, int64_t offset) {
    tensors.values.push_back(values);
    tensors.gradients.push_back(state.update_gradient().narrow(0, offset, values.numel()));
    for (size_t m = 0; m < state.moments.size(); ++m)
      tensors.moments[m].push_back(state.moments[m].narrow(0, offset, values.numel()));
  };
  if (state.master.defined()) {
    if (state.master.numel() > 0) add(state.master, 0);
    return tensors;
  }
  for (const SegmentView& view : state.segments)
    add(store_.segment_values(bucket, view.segment).narrow(0, view.begin, view.elements), view.offset);
  return tensors;
}

void Engine::step(double lr) {
  const at::NoGradGuard no_grad;
  ++steps_;
  step_tensor_.add_(1);
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    const double weight_decay = schedule_.buckets[b].decays ? optimizer_.weight_decay : 0;
    update(optimizer_, lr, weight_decay, step_tensor_, update_tensors(b));
    BucketState& state = states_[b];
    state.gradient_part = at::Tensor();
    state.gradient_full = at::Tensor();
    if (!state.master.defined()) continue;
    for (const SegmentView& view : state.segments)
      store_.segment_values(b, view.segment)
          .narrow(0, view.begin, view.elements)
          .copy_(state.master.narrow(0, view.offset, view.elements));
  }
}

void Engine::publish() {
  const at::NoGradGuard no_grad;
  if (schedule_.options.shard) spread_all(Spread::kValues);
}

int64_t Engine::optimizer_bytes() const {
  int64_t bytes = 0;
  for (const BucketState& state : states_) {
    if (state.master.defined()) bytes += static_cast<int64_t>(state.master.nbytes());
    for (const at::Tensor& moment : state.moments)
      bytes += static_cast<int64_t>(moment.nbytes());
  }
  return bytes;
}

int64_t Engine::gradient_bytes() const {
  int64_t bytes = 0;
  for (int s = 0; s < static_cast<int>(store_.slots().size()); ++s)
    bytes += store_.slot_gradient_bytes(s);
  for (const BucketState& state : states_)
    if (state.accumulator.defined()) bytes += static_cast<int64_t>(state.accumulator.nbytes());
  return bytes;
}

}  // namespace sdp
