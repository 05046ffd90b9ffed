#include "engine/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "engine/bucket_state.h"
#include "memory/allocations.h"
#include "model/tensors.h"
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

// The engine's state in the form that checkpoints store: ranges identified by parameter, unit and elements.

std::vector<StateRange> Engine::owned_state() {
  await_all_values();
  const std::vector<std::string> names = optimizer_.state_names();
  std::vector<StateRange> ranges;
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    const BucketState& state = states_[b];
    const at::Tensor values = state.master.defined() ? state.master : read_updated(b);
    for_each_state_range(b, /*only_own_share=*/true, [&](StateRange range, int64_t at_state) {
      const auto add = [&](const std::string& kind, const at::Tensor& tensor) {
        range.kind = kind;
        range.values = tensor.narrow(0, at_state, range.end - range.begin);
        ranges.push_back(range);
      };
      add("value", values);
      for (size_t m = 0; m < names.size(); ++m)
        add(names[m], state.moments[m]);
    });
  }
  return ranges;
}

void Engine::load_state(const std::function<void(const StateRange& range)>& read) {
  const at::NoGradGuard no_grad;
  const std::vector<std::string> names = optimizer_.state_names();
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    const BucketState& state = states_[b];
    for_each_state_range(b, /*only_own_share=*/false, [&](StateRange range, int64_t at_state) {
      const auto fill = [&](const std::string& kind, const at::Tensor& tensor) {
        range.kind = kind;
        range.values = tensor.narrow(0, at_state, range.end - range.begin);
        read(range);
      };
      if (state.master.defined()) fill("value", state.master);
      for (size_t m = 0; m < names.size(); ++m)
        fill(names[m], state.moments[m]);
    });
    for (const Segment& segment : schedule_.buckets[b].segments) {
      if (!segment.is_read_by(comm_.rank())) continue;
      const at::Tensor values =
          at::empty({segment.elements},
                    at::TensorOptions(scalar_type(schedule_.buckets[b].type)).device(comm_.device()));
      for (const Piece& piece : segment.pieces)
        read({"value", piece.parameter, segment.unit, 0, piece.elements,
              values.narrow(0, piece.offset, piece.elements)});
      FlatCopies copies;
      store_.add_segment_writes(copies, segment, values);
      copies.run();
    }
  }
}

void Engine::read_average(int parameter, int unit, const at::Tensor& flat) const {
  for (int b : index_.buckets_of[parameter])
    for_each_state_range(b, /*only_own_share=*/true, [&](const StateRange& range, int64_t at_state) {
      if (range.parameter != parameter || range.unit != unit) return;
      const int64_t elements = range.end - range.begin;
      flat.narrow(0, range.begin, elements).copy_(states_[b].moments.back().narrow(0, at_state, elements));
    });
}

void Engine::set_step_count(int64_t step_count) {
  const at::NoGradGuard no_grad;
  steps_ = step_count;
  step_tensor_.fill_(static_cast<double>(step_count));
}

Engine::BucketState Engine::BucketState::make(const Schedule& schedule, int bucket_index, int process,
                                              int moment_count, const at::TensorOptions& sum_options) {
  const Bucket& bucket = schedule.buckets[bucket_index];
  BucketState state;
  state.sum_options = sum_options;
  state.elements = elements_on(schedule, bucket_index, process);
  int64_t held = 0;
  int64_t shared = 0;
  for (int r = 0; r < static_cast<int>(bucket.segments.size()); ++r) {
    const Segment& segment = bucket.segments[r];
    const bool is_held = segment.is_held_by(process);
    const SegmentView whole{
        .segment = r, .begin = 0, .elements = is_held ? segment.elements : 0, .offset = held};
    const SegmentView share{.segment = r,
                            .begin = segment.share_begin(process),
                            .elements = segment.share_elements(process),
                            .offset = shared};
    state.held_offsets.push_back(is_held ? held : -1);
    state.share_offsets.push_back(is_held ? shared : -1);
    held += whole.elements;
    shared += share.elements;
    if (share.elements > 0) state.shares.push_back(share);
    if (is_held && !schedule.options.shard) state.segments.push_back(whole);
  }
  if (schedule.options.shard) state.segments = state.shares;

  const MemoryScope scope(MemoryKind::kOptimizer);
  for (int m = 0; m < moment_count; ++m)
    state.moments.push_back(at::zeros({state.elements.updated}, sum_options));
  if (has_master_values(bucket.type, schedule.options.precision))
    state.master = at::empty({state.elements.updated}, sum_options);
  return state;
}

void Engine::BucketState::allocate_accumulator() {
  accumulator = at::zeros({elements.held}, sum_options);
}

UpdateTensors Engine::BucketState::update_tensors() const {
  UpdateTensors tensors{.values = places, .gradients = gradients};
  if (places.empty()) tensors.values = {updated};
  if (gradient_full.defined()) tensors.gradients = {gradient_full.to(sum_options)};
  std::vector<int64_t> sizes;
  for (const at::Tensor& values : tensors.values)
    sizes.push_back(values.numel());
  if (tensors.gradients.size() != sizes.size())
    tensors.gradients = tensors.gradients.at(0).split_with_sizes(sizes);
  for (const at::Tensor& moment : moments)
    tensors.state.push_back(moment.split_with_sizes(sizes));
  return tensors;
}

}  // namespace sdp
