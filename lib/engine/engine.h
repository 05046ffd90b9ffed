#pragma once

// The engine turns the gradients of subnetworks into new parameter values, bucket by bucket, as an
// ExchangePlan prescribes. It does not depend on the model. If every worker owns every unit, the result is
// data parallelism: ZeRO-1 with `shard`, ZeRO-2 if gradients are released too, plain DDP without `shard`.
//
// A step consists of `begin_backward` and `end_backward` around each backward pass, then `reduce`, `step` and
// `gather_values`; the next forward pass calls `await_values` before each branch. Every process calls these
// functions in the same order. Buckets are exchanged in the exchange plan's order, whatever this process
// holds and in whatever order its gradients become ready.

#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "engine/clocks.h"
#include "engine/local_bucket.h"
#include "engine/parameter_store.h"
#include "optim/optimizer_spec.h"
#include "subnet/exchange.h"

namespace sdp {

class Engine {
 public:
  Engine(const SubnetPlan& plan, const ExchangePlan& exchanges, const OptimizerSpec& optimizer,
         Communicator& comm);
  Engine(const Engine&) = delete;  // the leaves' hooks and the buckets point to it
  Engine& operator=(const Engine&) = delete;

  const ModelLayout& layout() const { return plan_.layout; }
  ParameterStore& store() { return store_; }
  const ParameterStore& store() const { return store_; }
  /// Sets the values of a parameter, given in the full model's shape.
  void set_parameter(int parameter, const at::Tensor& full);
  /// Initializes every parameter with random numbers from a seed of its own (layers/tensors.h).
  void initialize(uint64_t seed);

  /// Call these before and after a slot's backward pass over one micro-batch. `last`: no other backward pass
  /// follows on this process before gradients are reduced, which happens once per step or after each
  /// micro-batch (exchange plan options).
  ///
  /// If every pass is the last one, gradients stay where autograd stores them until they are sent; otherwise
  /// they are added to buffers of the sum type. If gradients are reduced after each micro-batch, the results
  /// are added up in this process's shard.
  ///
  /// With `release_gradients` (exchange plan options) the engine takes each gradient as soon as autograd has
  /// computed it: if gradients are accumulated, it adds the gradient to the buffers at once. In the last pass
  /// it exchanges each bucket as soon as all of the bucket's gradients are ready, while the backward pass
  /// continues, and frees their memory. Without `release_gradients`, all of this happens after the pass.
  void begin_backward(int local_slot, bool last);
  void end_backward();
  /// Reduces all buckets that were not exchanged during the backward pass: sums gradients over micro-batches,
  /// slots and processes in worker order and divides by the number of summands. Missing gradients count as
  /// zeros. Then clips by the global norm, in which every parameter counts once. Without `shard`, every
  /// holder then receives the whole averaged gradient. `measures_norm`: also without clipping.
  void reduce(bool measures_norm = false);
  /// Only the first part of reduce(): the averaged gradients without clipping. For a CUDA graph that contains
  /// it: the sums are taken after the capture, and set before reduce() after every replay.
  void sum_gradients();
  using Sums = std::vector<std::vector<at::Tensor>>;  ///< by bucket
  Sums take_sums();
  void set_sums(const Sums& sums);
  /// Whether every averaged gradient that this process applies is finite: one bool on the device. Call it
  /// between reduce() and step().
  at::Tensor gradients_are_finite() const;
  /// Discards the averaged gradients. Call it instead of step() and gather_values() to skip the step.
  void discard_gradients();
  /// Updates this process's shard (without `shard`: everything it holds) with learning rate `lr`.
  void step(double lr);
  /// Begins the all-gathers that send the updated values to all other processes that store them: the holders
  /// or, with backward masking, all processes. They continue during the next forward pass.
  void gather_values() { run(order_.begin_gathering()); }
  /// Returns when everything that the forward pass reads up to and including this branch has its new values.
  /// -1 stands for the layers before the first branch. On CUDA the current stream waits.
  void await_values(int branch) { run(order_.reach(branch)); }
  /// Awaits all values. Code that reads values outside the forward pass must call it first.
  void await_all_values() { await_values(static_cast<int>(plan_.layout.branches.size())); }

  /// Whether there is a moving average of the values (optimizer.ema_decay, after the first update).
  bool has_average() const { return optimizer_.ema_decay > 0 && steps_ > 0; }
  /// Writes the elements of a unit's slice of a parameter whose average this process saves into `flat`, and
  /// leaves the others. Over all processes, every element is written once.
  void read_average(int parameter, int unit, const at::Tensor& flat) const;

  /// Global gradient norm of the last reduce() that measured it, before clipping (one element, sum type).
  const at::Tensor& gradient_norm() const { return gradient_norm_; }
  at::Device device() const { return comm_.device(); }
  int64_t optimizer_bytes() const;
  /// Bytes of all gradients that exist now, including accumulated and averaged ones.
  int64_t gradient_bytes() const;
  /// Number of updates so far, which AdamW's bias correction depends on.
  int64_t step_count() const { return steps_; }
  /// Totals since the engine was created. The all-gather of a bucket's values is counted when the values are
  /// awaited.
  const ExchangeTotals& reduce_totals() { return reduce_clock_.totals(); }
  const ExchangeTotals& gather_totals() { return gather_clock_.totals(); }

  /// The state that this process saves. Over all processes, every element of every parameter occurs once.
  std::vector<StateRange> owned_state(bool with_values = true);
  /// LocalBucket::find_state. The engine of a single process has every slice whole.
  at::Tensor find_state(const std::string& kind, int parameter, int unit) const;
  std::vector<std::string> state_names() const { return optimizer_.state_names(); }
  /// Loads everything this process needs to continue from a checkpoint. `read` must fill the `values` of each
  /// range it is called with; a "value" is a saved master value, rounded if the type of `values` is narrower.
  void load_state(const std::function<void(const StateRange& range)>& read);
  void set_step_count(int64_t step_count);

 private:
  class Hook;
  void on_gradient(int local_slot, int parameter);
  void accumulate(int parameter);
  void run(const ExchangeEvents& events);
  void measure_norm();
  void clip();

  const SubnetPlan& plan_;
  const ExchangePlan& exchanges_;
  const OptimizerSpec optimizer_;
  Communicator& comm_;
  ParameterStore store_;
  const BucketIndex index_;
  ExchangeOrder order_;
  ExchangeClock reduce_clock_;
  ExchangeClock gather_clock_;
  const BucketContext context_;
  std::vector<LocalBucket> buckets_;
  bool has_sums_ = false;  ///< sum_gradients() or set_sums() has been called since the last reduce()
  int slot_ = -1;          ///< slot whose backward pass is running; -1: none

  at::Tensor step_tensor_;  ///< steps_ on the device, fp32
  at::Tensor gradient_norm_;
  int64_t steps_ = 0;
};

}  // namespace sdp
