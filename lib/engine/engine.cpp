#include "engine/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "engine/bucket_state.h"
#include "engine/state_ranges.h"
#include "memory/allocations.h"
#include "model/slices.h"
#include "optim/update.h"
#include "subnet/storage.h"

namespace sdp {

Engine::Engine(const SubnetPlan& plan, const Schedule& schedule, const OptimizerSpec& optimizer,
               Communicator& comm)
    : plan_(plan),
      schedule_(schedule),
      optimizer_(optimizer),
      comm_(comm),
      store_(plan, schedule, comm.rank(), comm.device()),
      index_(index_buckets(plan.layout, schedule)),
      order_(index_),
      step_tensor_(at::zeros({}, at::TensorOptions(at::kFloat).device(comm.device()))),
      reduce_clock_(comm),
      gather_clock_(comm) {
  if (comm.size() != schedule.placement.processes)
    throw std::logic_error("the schedule was made for a different number of processes");
  const at::TensorOptions options =
      at::TensorOptions(scalar_type(sum_type(schedule.options.precision))).device(comm.device());
  const int moments = static_cast<int>(optimizer.state_names().size());
  const std::vector<char> scattered = scattered_parameters(plan, store_.slots());
  for (int b = 0; b < static_cast<int>(schedule.buckets.size()); ++b) {
    BucketState& state = states_.emplace_back(BucketState::make(schedule, b, comm.rank(), moments, options));
    if (!updates_in_place(schedule, b, comm.rank(), scattered)) continue;
    for_each_state_range(b, /*only_own_share=*/false, [&](const StateRange& range, int64_t) {
      state.places.push_back(store_.piece(range.parameter, range.unit)
                                 .view({-1})
                                 .narrow(0, range.begin, range.end - range.begin));
    });
  }
  add_hooks();
}

Engine::~Engine() = default;

void Engine::set_values(const std::function<at::Tensor(int parameter)>& full) {
  const at::NoGradGuard no_grad;
  for (int p = 0; p < static_cast<int>(plan_.layout.parameters.size()); ++p) {
    const ParameterLayout& parameter = plan_.layout.parameters[p];
    const at::Tensor values = full(p);
    store_.write_parameter(p, values);
    // Master values start from the given values, not from those rounded to the parameter's type.
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

at::Tensor Engine::read_updated(int bucket) const {
  const BucketState& state = states_[bucket];
  at::Tensor values = at::empty({state.elements.updated}, state.sum_options);
  FlatCopies copies;
  for (const SegmentView& view : state.segments)
    store_.add_segment_reads(copies, schedule_.buckets[bucket].segments[view.segment], view.begin,
                             values.narrow(0, view.offset, view.elements));
  copies.run();
  return values;
}

void Engine::step(double lr) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryKind::kBuckets);
  ++steps_;
  step_tensor_.add_(1);
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    BucketState& state = states_[b];
    const Bucket& bucket = schedule_.buckets[b];
    if (state.places.empty()) state.updated = state.master.defined() ? state.master : read_updated(b);
    if (state.elements.updated > 0)
      update(optimizer_,
             {.lr = lr * optimizer_.lr_factor(bucket.group),
              .weight_decay = optimizer_.weight_decay(bucket.group, bucket.decays),
              .number = step_tensor_,
              .is_first = steps_ == 1},
             state.update_tensors());
    state.gradients.clear();
    state.gradient_full = at::Tensor();
  }
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
  for (const BucketState& state : states_) {
    for (const at::Tensor& tensor : {state.accumulator, state.gradient_full})
      if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
    for (const at::Tensor& tensor : state.gradients)
      bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace sdp
