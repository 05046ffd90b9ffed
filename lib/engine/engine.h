#pragma once

// The engine turns the gradients of subnetworks into new values, bucket by bucket, over a Schedule. It knows
// nothing of models. With every unit owned by every worker it is data parallelism: ZeRO-1 with `shard`, plain
// DDP without.
//
// A step: after each backward pass `absorb`; then `reduce`, `step`, `publish`. Every process of the world
// calls them in the same order; they exchange in the schedule's order whatever this process holds.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/optimizer.h"
#include "engine/parameter_store.h"

namespace sdp {

/// A range of a parameter's state, for checkpoints: elements [begin, end) of a unit's piece of the
/// parameter.
struct StateRange {
  std::string kind;  ///< "value" (master value) or a name out of moment_names()
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

  ParameterStore& store() { return store_; }
  const ParameterStore& store() const { return store_; }
  /// Sets every value. `full(i)` gives parameter i in the full model's shape; it is asked for one at a time.
  void set_values(const std::function<at::Tensor(int parameter)>& full);
  /// Every parameter as drawn from its own seed (model/tensor_source.h).
  void initialize(uint64_t seed);

  /// Takes in what a slot's backward pass of one micro-batch left. With one slot and one micro-batch a step
  /// the gradients stay where autograd put them; otherwise they are added to fp32 buffers and released.
  void absorb(int local_slot);
  /// Sums gradients over micro-batches, slots and processes in worker order and divides by the number of
  /// summands; clips by the global norm, in which every parameter counts once. Without `shard`, every holder
  /// then gets the whole averaged gradient.
  void reduce();
  /// Updates this process's share (without `shard`: all it holds) at learning rate `lr`.
  void step(double lr);
  /// Writes the updated values and sends them to all other processes that have them: the holders and, under
  /// backward masking, all.
  void publish();

  /// Global gradient norm of the last reduce (one element, sum type); defined when clipping is on.
  const at::Tensor& gradient_norm() const { return gradient_norm_; }
  int64_t optimizer_bytes() const;
  /// Gradients and their accumulation buffers standing now.
  int64_t gradient_bytes() const;
  /// Updates done, which AdamW's bias correction depends on.
  int64_t step_count() const { return steps_; }

  /// What this process saves: every element of every parameter once over the world.
  std::vector<StateRange> owned_state();
  /// Fills everything this process needs to continue from a checkpoint. `read` is called with ranges whose
  /// `values` it has to fill; a "value" is a saved master value, rounded to its type where that is narrower.
  void load_state(const std::function<void(const StateRange& range)>& read);
  void set_step_count(int64_t step_count);

 private:
  struct BucketState;
  struct InFlight;

  /// Buffers of an exchange in which process i sends elements(i, j) to process j.
  template <class Elements>
  InFlight prepare(int bucket, Elements elements) const;
  void send_off(InFlight& flight);
  InFlight begin_reduce(int bucket);
  void finish_reduce(InFlight& flight);
  void clip();
  /// Exchange that carries the updated shares back: averaged gradients (no shard) or new values.
  enum class Spread { kGradients, kValues };
  Audience audience_of(Spread what) const;
  InFlight begin_spread(int bucket, Spread what);
  void finish_spread(InFlight& flight, Spread what);
  void finish_values(InFlight& flight);
  void finish_gradients(InFlight& flight);
  void spread_all(Spread what);

  at::Tensor absorbed_gradients(int bucket, int segment);
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
  std::vector<BucketState> states_;
  /// By bucket: the parameters of which it has the first piece, so that their gradients are packed with it.
  std::vector<std::vector<int>> first_of_;
  at::Tensor step_tensor_;  ///< steps_ on the device, fp32
  at::Tensor gradient_norm_;
  int64_t steps_ = 0;
};

}  // namespace sdp
