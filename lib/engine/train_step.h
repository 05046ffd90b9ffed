#pragma once

// One step of one process: forward and backward of its subnetworks, reduce-scatter, update, all-gather.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "data/device_loader.h"
#include "data/sampler.h"
#include "engine/clocks.h"
#include "engine/engines.h"
#include "engine/graphed_passes.h"
#include "engine/parameter_store.h"
#include "experiment/experiment.h"
#include "experiment/step_origin.h"
#include "layers/model.h"

namespace sdp {

/// What was not finite in a step (train.on_nonfinite).
struct NonfiniteStep {
  std::vector<size_t> slots;  ///< slots with a non-finite loss, numbered over all processes in rank order
  std::vector<int64_t> gradient_ranks;  ///< ranks whose shard of the averaged gradients is not finite
};

/// Collective: one all-gather of [local slots + 1] fp64. `losses`: [local slots], fp64, and
/// `gradients_are_finite`: one bool, on the communicator's device, for which the host waits once. Returns the
/// same on all processes; std::nullopt if everything is finite.
std::optional<NonfiniteStep> find_nonfinite(Communicator& comm, const at::Tensor& losses,
                                            const at::Tensor& gradients_are_finite);

/// How the samples of a step are divided into batches, if steps have had their present size since `origin`.
BatchGeometry batch_geometry(const ExperimentSpec& spec, const StepOrigin& origin = {});

struct StepResult : PassResult {
  at::Tensor gradient_norm =
      {};  ///< before clipping: one element on the device; undefined if it was not measured
  /// Set if the step was not applied (train.on_nonfinite: skip): parameters, optimizer state and BatchNorm
  /// statistics are unchanged. The same on all processes.
  std::optional<NonfiniteStep> nonfinite = {};
  /// With local steps, which workers of this process skipped the step, each of them alone.
  std::vector<int> skipped_workers = {};
};

class TrainStep {
 public:
  /// Builds the models of the local slots. The arguments must outlive it.
  TrainStep(const Experiment& experiment, const Engines& engines, Communicator& comm,
            const StepOrigin& origin = {});

  /// Calls `next_batch` once per micro-batch and slot, in that order. The gradient norm is also measured if
  /// gradients are clipped.
  StepResult run(int64_t step, double lr, const std::function<TensorBatch()>& next_batch,
                 bool measures_gradient_norm = false);

  /// Times of all steps so far.
  StepClock& clock() { return clock_; }

  /// One per local slot.
  const std::vector<std::unique_ptr<Model>>& models() const { return models_; }

 private:
  using AfterLastPass = std::function<void(size_t slot, const PassResult& result)>;
  /// All passes, each on the batch that `next_batch` returns. `marks`: their times are taken. Calls `after`
  /// when a slot's last pass is over.
  PassResult passes(int64_t step, const std::function<TensorBatch()>& next_batch, bool marks,
                    const AfterLastPass& after = {});
  /// The step of a worker that trains alone, when its last pass is over: its gradients are freed before the
  /// next worker's pass.
  void update_worker(size_t last_slot, double lr, const at::Tensor& losses, StepResult& result);
  void update(Engine& engine, double lr);
  /// Of slots [first, end).
  void restore_statistics(size_t first, size_t end);
  void pass(int64_t step, int64_t micro_batch, size_t slot, const TensorBatch& batch, bool marks,
            PassResult& result);
  PassResult graphed_passes(const std::function<TensorBatch()>& next_batch);
  std::optional<at::Generator> noise(int64_t step, int64_t micro_batch, const Slot& slot);

  const Experiment& experiment_;
  const BatchGeometry geometry_;
  const Engines engines_;
  const std::vector<Engines::Place> slots_;
  Communicator& comm_;
  const at::Device device_;
  const bool skips_nonfinite_;  ///< train.on_nonfinite: skip
  // Then BatchNorm statistics of the slots, now and before the step, and by slot the index of its first one.
  std::vector<at::Tensor> statistics_;
  std::vector<at::Tensor> statistics_before_;
  std::vector<std::ptrdiff_t> first_statistic_ = {0};
  at::Generator generator_;  ///< for dropout and stochastic depth
  std::vector<std::unique_ptr<Model>> models_;
  StepClock clock_;
  std::optional<GraphedPasses> graph_;  ///< with train.cuda_graph
};

}  // namespace sdp
