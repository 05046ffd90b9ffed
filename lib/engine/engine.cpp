#include "engine/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "engine/checks.h"
#include "layers/tensors.h"
#include "process/allocations.h"
#include "subnet/storage.h"

namespace sdp {
namespace {

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
    assign_kind(leaf.grad(), MemoryKind::kGradients);
    engine_.on_gradient(slot_, parameter_);
  }

 private:
  Engine& engine_;
  const int slot_;
  const int parameter_;
};

Engine::Engine(const SubnetPlan& plan, const ExchangePlan& exchanges, const OptimizerSpec& optimizer,
               Communicator& comm)
    : plan_(plan),
      exchanges_(exchanges),
      optimizer_(optimizer),
      comm_(comm),
      store_(plan, exchanges, comm.rank(), comm.device()),
      index_(index_buckets(plan.layout, exchanges)),
      order_(index_),
      reduce_clock_(comm),
      gather_clock_(comm),
      context_{plan, exchanges, optimizer_, index_, store_, comm, reduce_clock_, gather_clock_},
      step_tensor_(at::zeros({}, at::TensorOptions(at::kFloat).device(comm.device()))) {
  if (comm.size() != exchanges.slot_map.processes)
    throw std::logic_error("the exchange plan was made for a different number of processes");
  const std::vector<char> scattered = scattered_parameters(plan, store_.slots());
  buckets_.reserve(exchanges.buckets.size());
  for (int b = 0; b < static_cast<int>(exchanges.buckets.size()); ++b)
    buckets_.emplace_back(context_, b, updates_in_place(exchanges, b, comm.rank(), scattered));
  for (int s = 0; s < static_cast<int>(store_.slots().size()); ++s)
    for (int p : store_.owned_parameters(s))
      torch::autograd::impl::set_post_acc_grad_hooks(store_.leaf(s, p), std::make_unique<Hook>(*this, s, p));
}

void Engine::set_parameter(int parameter, const at::Tensor& full) {
  const at::NoGradGuard no_grad;
  store_.write_parameter(parameter, full);
  for (int b : index_.buckets_of[parameter])
    buckets_[b].set_master(parameter, full);
}

void Engine::initialize(uint64_t seed) {
  for (int p = 0; p < static_cast<int>(plan_.layout.parameters.size()); ++p)
    set_parameter(p, draw_parameter(plan_.layout.parameters[p], seed));
}

/// Begins and ends exchanges in the order that subnet/exchange.h determines.
void Engine::run(const ExchangeEvents& events) {
  const at::NoGradGuard no_grad;
  for (const ExchangeEvent& event : events) {
    const PhaseScope phase(comm_, event.kind == ExchangeKind::kGatherValues ? "gather" : "reduce");
    if (event.what == ExchangeEvent::What::kBegin)
      buckets_[event.bucket].begin(event.kind);
    else
      buckets_[event.bucket].end(event.kind);
  }
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
  if (!exchanges_.options.release_gradients || local_slot != slot_) return;
  const ExchangeEvents events = order_.gradient_ready(parameter);
  if (exchanges_.accumulates()) accumulate(parameter);
  run(events);
}

/// Adds the slot's gradient of the parameter to the buckets' buffers, and frees it.
void Engine::accumulate(int parameter) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryKind::kGradients);
  for (int b : index_.buckets_of[parameter])
    buckets_[b].accumulate(slot_, parameter);
  store_.release_gradients(slot_, parameter);
}

void Engine::end_backward() {
  if (exchanges_.accumulates())
    for (int parameter : store_.owned_parameters(slot_))
      if (!order_.is_ready(parameter) && store_.leaf(slot_, parameter).grad().defined())
        accumulate(parameter);
  slot_ = -1;
}

void Engine::sum_gradients() {
  const at::NoGradGuard no_grad;
  if (slot_ >= 0) throw std::logic_error("sum_gradients() during a backward pass");
  run(order_.finish_reducing());
  has_sums_ = true;
}

Engine::Sums Engine::take_sums() {
  Sums sums;
  for (LocalBucket& bucket : buckets_)
    sums.push_back(std::exchange(bucket.gradients(), {}));
  has_sums_ = false;
  return sums;
}

void Engine::set_sums(const Sums& sums) {
  for (size_t b = 0; b < buckets_.size(); ++b)
    buckets_[b].gradients() = sums.at(b);
  has_sums_ = true;
}

void Engine::reduce(bool measures_norm) {
  const at::NoGradGuard no_grad;
  if (!has_sums_) sum_gradients();
  has_sums_ = false;
  if (measures_norm || optimizer_.clip_norm > 0) measure_norm();
  if (optimizer_.clip_norm > 0) clip();
  if (!exchanges_.options.shard) run(order_.gather_gradients());
}

void Engine::measure_norm() {
  const PhaseScope phase(comm_, "reduce");
  at::Tensor squares = at::zeros(
      {1}, at::TensorOptions(scalar_type(sum_type(exchanges_.options.precision))).device(comm_.device()));
  for (const LocalBucket& bucket : buckets_)
    for (const at::Tensor& gradient : bucket.gradients())
      squares.add_(sum_of_squares(gradient));
  comm_.all_reduce_sum(squares);
  gradient_norm_ = squares.sqrt();
}

void Engine::clip() {
  const at::Tensor factor = (optimizer_.clip_norm / (gradient_norm_ + 1e-6)).clamp_max(1);
  for (LocalBucket& bucket : buckets_)
    at::_foreach_mul_(bucket.gradients(), factor.squeeze());
}

at::Tensor Engine::gradients_are_finite() const {
  std::vector<at::Tensor> gradients;
  for (const LocalBucket& bucket : buckets_)
    gradients.insert(gradients.end(), bucket.gradients().begin(), bucket.gradients().end());
  return are_finite(gradients).all();
}

void Engine::discard_gradients() {
  for (LocalBucket& bucket : buckets_)
    bucket.gradients().clear();
}

void Engine::step(double lr) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryKind::kBuckets);
  ++steps_;
  step_tensor_.add_(1);
  for (LocalBucket& bucket : buckets_)
    bucket.step({.lr = lr, .number = step_tensor_, .is_first = steps_ == 1});
}

int64_t Engine::optimizer_bytes() const {
  int64_t bytes = 0;
  for (const LocalBucket& bucket : buckets_)
    bytes += bucket.optimizer_bytes();
  return bytes;
}

int64_t Engine::gradient_bytes() const {
  int64_t bytes = 0;
  for (int s = 0; s < static_cast<int>(store_.slots().size()); ++s)
    bytes += store_.slot_gradient_bytes(s);
  for (const LocalBucket& bucket : buckets_)
    bytes += bucket.gradient_bytes();
  return bytes;
}

std::vector<StateRange> Engine::owned_state(bool with_values) {
  await_all_values();
  std::vector<StateRange> ranges;
  for (const LocalBucket& bucket : buckets_)
    for (StateRange& range : bucket.saved_state(with_values))
      ranges.push_back(std::move(range));
  return ranges;
}

at::Tensor Engine::find_state(const std::string& kind, int parameter, int unit) const {
  for (int b : index_.buckets_of[parameter])
    if (at::Tensor state = buckets_[b].find_state(kind, parameter, unit); state.defined()) return state;
  return {};
}

void Engine::load_state(const std::function<void(const StateRange& range)>& read) {
  const at::NoGradGuard no_grad;
  for (LocalBucket& bucket : buckets_)
    bucket.load(read);
}

void Engine::read_average(int parameter, int unit, const at::Tensor& flat) const {
  for (int b : index_.buckets_of[parameter])
    buckets_[b].read_average(parameter, unit, flat);
}

void Engine::set_step_count(int64_t step_count) {
  const at::NoGradGuard no_grad;
  steps_ = step_count;
  step_tensor_.fill_(static_cast<double>(step_count));
}

}  // namespace sdp
