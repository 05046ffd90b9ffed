// Accumulates gradients as autograd produces them, and exchanges them bucket by bucket while the backward
// pass continues.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <utility>

#include "engine/bucket_state.h"
#include "memory/allocations.h"

namespace sdp {

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

}  // namespace sdp
