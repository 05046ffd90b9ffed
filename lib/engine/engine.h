#pragma once

// The engine turns the gradients of subnetworks into new values, bucket by bucket, over a Schedule. It knows
// nothing of models. With every unit owned by every worker it is data parallelism: ZeRO-1 with `shard`,
// ZeRO-2 with released gradients too, plain DDP without.
//
// A step: around each backward pass `begin_backward` and `end_backward`; then `reduce`, `step`,
// `gather_values`; in the next forward pass `await_values` before each branch. Every process of the world
// calls them in the same order; they exchange in the schedule's order whatever this process holds and
// whatever order its gradients come in.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/exchange_clock.h"
#include "engine/parameter_store.h"
#include "optim/optimizer_spec.h"
#include "subnet/exchange_order.h"

namespace sdp {

/// A range of a parameter's state, for checkpoints: elements [begin, end) of a unit's piece of the
/// parameter.
struct StateRange {
  std::string kind;  ///< "value" (master value) or a name out of OptimizerSpec::state_names()
  int parameter = 0;
  int unit = kSharedUnit;
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor values;  ///< flat
};

class Engine {
 public:
  Engine(const SubnetPlan& plan, const Schedule& schedule, const OptimizerSpec& optimizer,
         Communicator& comm);
  ~Engine();
  Engine(const Engine&) = delete;  // the leaves' hooks point to it
  Engine& operator=(const Engine&) = delete;

  ParameterStore& store() { return store_; }
  const ParameterStore& store() const { return store_; }
  /// Sets every value. `full(i)` gives parameter i in the full model's shape; it is asked for one at a time.
  void set_values(const std::function<at::Tensor(int parameter)>& full);
  /// Every parameter as drawn from its own seed (model/tensor_source.h).
  void initialize(uint64_t seed);

  /// Stand around a slot's backward pass of one micro-batch; `last`: no other pass follows on this process
  /// before gradients are reduced, once per step or after each micro-batch (schedule options). Where each
  /// pass is the last one, gradients stay where autograd puts them until they are sent; otherwise they are
  /// added to buffers of the sum type. What is reduced after a micro-batch is added up in the own share. With
  /// `release_gradients` (schedule options) each gradient is taken when autograd has it: added up at once,
  /// and in the last pass a bucket whose gradients are all there is exchanged while the backward pass goes
  /// on, and its gradients' memory given back. Otherwise all of that happens after the pass.
  void begin_backward(int local_slot, bool last);
  void end_backward();
  /// Sums gradients over micro-batches, slots and processes in worker order and divides by the number of
  /// summands, in all buckets that were not exchanged during the backward pass; gradients that did not come
  /// count as zeros. Clips by the global norm, in which every parameter counts once. Without `shard`, every
  /// holder then gets the whole averaged gradient.
  void reduce();
  /// Whether every averaged gradient that this process applies is finite. The host waits for the device.
  /// Between reduce() and step().
  bool gradients_are_finite() const;
  /// Forgets the averaged gradients, instead of step() and gather_values(): as if the step had never been.
  void discard_gradients();
  /// Updates this process's share (without `shard`: all it holds) at learning rate `lr`.
  void step(double lr);
  /// Begins the all-gathers of the updated values, to all other processes that have them: the holders and,
  /// under backward masking, all. They go on during the next forward pass.
  void gather_values();
  /// Returns when everything that the forward pass reads up to this branch, it included, has its new values;
  /// -1: what stands before the first branch. On CUDA the current stream waits.
  void await_values(int branch);
  /// The same for everything. What reads values outside of the forward pass has to call it.
  void await_all_values();

  /// Global gradient norm of the last reduce (one element, sum type); defined when clipping is on.
  const at::Tensor& gradient_norm() const { return gradient_norm_; }
  int64_t optimizer_bytes() const;
  /// Gradients, accumulated and averaged ones too, standing now.
  int64_t gradient_bytes() const;
  /// Updates done, which AdamW's bias correction depends on.
  int64_t step_count() const { return steps_; }
  /// Since the engine was made; the all-gather of a bucket's values is booked when they are awaited.
  const ExchangeTotals& reduce_totals() { return reduce_clock_.totals(); }
  const ExchangeTotals& gather_totals() { return gather_clock_.totals(); }

  /// What this process saves: every element of every parameter once over the world.
  std::vector<StateRange> owned_state();
  /// Fills everything this process needs to continue from a checkpoint. `read` is called with ranges whose
  /// `values` it has to fill; a "value" is a saved master value, rounded to its type where that is narrower.
  void load_state(const std::function<void(const StateRange& range)>& read);
  void set_step_count(int64_t step_count);

 private:
  struct BucketState;
  struct InFlight;
  class Hook;

  // backward.cpp
  void add_hooks();
  void on_gradient(int local_slot, int parameter);
  void accumulate(int parameter);

  // exchanges.cpp
  void run(const ExchangeEvents& events);
  /// An exchange with empty buffers.
  InFlight prepare(int bucket, ExchangeKind kind) const;
  void send_off(InFlight& flight);
  ExchangeClock& clock_of(ExchangeKind kind);
  void end(InFlight flight);

  // reduce.cpp
  InFlight begin_reduce(int bucket);
  void finish_reduce(InFlight& flight);
  void clip();

  // gather.cpp
  InFlight begin_gather(int bucket, ExchangeKind kind);
  template <class Use>
  void for_each_received(const InFlight& flight, Use use) const;
  void finish_gradients(InFlight& flight);
  void finish_values(InFlight& flight);

  /// Flat gradients of the segment's pieces on this process, by parameter.
  std::map<int, at::Tensor> flat_gradients(int bucket, int segment);
  void release_packed(int bucket);
  /// Copy of the values that the optimizer updates here, in the order of the state's segments.
  at::Tensor read_updated(int bucket) const;
  /// Calls `visit(range without values, where it stands in the state's tensors)` for each piece of what the
  /// optimizer updates here, or of this process's own share.
  template <class Visit>
  void for_each_state_range(int bucket, bool only_own_share, Visit visit) const;

  const SubnetPlan& plan_;
  const Schedule& schedule_;
  const OptimizerSpec optimizer_;
  Communicator& comm_;
  ParameterStore store_;
  const BucketIndex index_;
  std::vector<BucketState> states_;
  ExchangeOrder order_;
  std::deque<InFlight> in_flight_;
  int slot_ = -1;  ///< whose backward pass is under way; -1: none is

  at::Tensor step_tensor_;  ///< steps_ on the device, fp32
  at::Tensor gradient_norm_;
  int64_t steps_ = 0;
  ExchangeClock reduce_clock_;
  ExchangeClock gather_clock_;
};

}  // namespace sdp
