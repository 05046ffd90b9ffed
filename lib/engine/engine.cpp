#include "engine/engine.h"

#include <ATen/ATen.h>

#include <set>
#include <stdexcept>

#include "engine/bucket_state.h"
#include "engine/state_ranges.h"
#include "model/slices.h"
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
  std::set<int> seen;
  for (const Bucket& bucket : schedule.buckets) {
    std::vector<int>& first = first_of_.emplace_back();
    for (const Segment& segment : bucket.segments)
      for (const Piece& piece : segment.pieces)
        if (seen.insert(piece.parameter).second) first.push_back(piece.parameter);
  }
}

Engine::~Engine() = default;

void Engine::set_values(const std::function<at::Tensor(int parameter)>& full) {
  const at::NoGradGuard no_grad;
  for (int p = 0; p < static_cast<int>(plan_.layout.parameters.size()); ++p) {
    const ParameterLayout& parameter = plan_.layout.parameters[p];
    const at::Tensor values = full(p);
    store_.write_parameter(p, values);
    // Master values start as given, not as the rounded values they were cast to.
    const std::vector<int> units = plan_.units_of(parameter);
    for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
      if (!states_[b].master.defined()) continue;
      for_each_state_range(b, /*only_own_share=*/false, [&](const StateRange& range, int64_t at_state) {
        if (range.parameter != p) return;
        const at::Tensor piece = piece_view(values, parameter.slice, plan_, units, range.unit);
        const int64_t size = range.end - range.begin;
        states_[b].master.narrow(0, at_state, size).copy_(piece.reshape({-1}).narrow(0, range.begin, size));
      });
    }
  }
}

void Engine::initialize(uint64_t seed) {
  set_values([&](int parameter) { return draw_parameter(plan_.layout.parameters[parameter], seed); });
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
          .add_(store_.segment_gradients(local_slot, segment));
    }
  }
  for (int b = 0; b < static_cast<int>(states_.size()); ++b)
    for (int parameter : first_of_[b])
      store_.release_gradients(local_slot, parameter);
}

at::Tensor Engine::absorbed_gradients(int bucket, int segment_index) {
  const BucketState& state = states_[bucket];
  const Segment& segment = schedule_.buckets[bucket].segments[segment_index];
  if (!schedule_.accumulates()) return store_.segment_gradients(0, segment);
  if (!state.accumulator.defined()) throw std::logic_error("reduce without a backward pass");
  return state.accumulator.narrow(0, state.held_offsets[segment_index], segment.elements);
}

/// Buckets are packed from the last to the first: once a parameter's first piece is packed, all of them are.
void Engine::release_packed(int bucket) {
  states_[bucket].accumulator = at::Tensor();
  if (schedule_.accumulates()) return;
  for (int parameter : first_of_[bucket])
    store_.release_gradients(0, parameter);
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
    squares.add_(state.gradient_share.square().sum());
  comm_.all_reduce_sum(squares);
  gradient_norm_ = squares.sqrt();
  const at::Tensor factor = (optimizer_.clip_norm / (gradient_norm_ + 1e-6)).clamp_max(1);
  for (BucketState& state : states_)
    state.gradient_share.mul_(factor);
}

at::Tensor Engine::read_updated(int bucket) const {
  const BucketState& state = states_[bucket];
  at::Tensor values = at::empty({state.updated_elements()}, state.sum_options);
  for (const SegmentView& view : state.segments)
    values.narrow(0, view.offset, view.elements)
        .copy_(
            store_.read_segment(schedule_.buckets[bucket].segments[view.segment], view.begin, view.elements));
  return values;
}

void Engine::step(double lr) {
  const at::NoGradGuard no_grad;
  ++steps_;
  step_tensor_.add_(1);
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    BucketState& state = states_[b];
    const double weight_decay = schedule_.buckets[b].decays ? optimizer_.weight_decay : 0;
    state.updated = state.master.defined() ? state.master : read_updated(b);
    if (state.updated.numel() > 0)
      update(optimizer_, lr, weight_decay, step_tensor_, state.updated, state.update_gradient(),
             state.moments);
    state.gradient_share = at::Tensor();
    state.gradient_full = at::Tensor();
  }
}

void Engine::publish() {
  const at::NoGradGuard no_grad;
  spread_all(Spread::kValues);
  for (BucketState& state : states_)
    state.updated = at::Tensor();
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
