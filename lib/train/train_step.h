#pragma once

// One step of one process: forward and backward of its subnetworks, reduce-scatter, update, all-gather.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/pipeline/sampler.h"
#include "engine/engine.h"
#include "experiment/experiment.h"
#include "feed/batch.h"
#include "model/model.h"
#include "train/nonfinite.h"
#include "train/step_clock.h"

namespace sdp {

/// How the samples of the experiment's steps are dealt out.
BatchGeometry batch_geometry(const ExperimentSpec& spec);

struct StepResult {
  at::Tensor losses;  ///< of the slots, averaged over the micro-batches: [local slots], fp64, on the device
  /// Images in the class of their label, of those that were counted (train/loss.h): one int64 on the device.
  at::Tensor correct;
  int64_t counted = 0;
  /// With train.on_nonfinite: skip, of a step that was not applied: values, optimizer state and BatchNorm
  /// statistics are those before it. The same on all processes.
  std::optional<NonfiniteStep> nonfinite = {};
};

class TrainStep {
 public:
  /// Makes the models of the engine's local slots. The arguments must outlive it.
  TrainStep(const Experiment& experiment, Engine& engine, Communicator& comm);

  /// Asks for one batch of each micro-batch and slot, in that order.
  StepResult run(int64_t step, double lr, const std::function<TensorBatch()>& next_batch);

  /// Of all steps so far.
  StepClock& clock() { return clock_; }

  /// One for each local slot.
  const std::vector<std::unique_ptr<Model>>& models() const { return models_; }

 private:
  std::optional<at::Generator> noise(int64_t step, int64_t micro_batch, size_t local_slot);

  const Experiment& experiment_;
  Engine& engine_;
  Communicator& comm_;
  const at::Device device_;
  std::optional<BufferBackup> backup_;  ///< with train.on_nonfinite: skip
  at::Generator generator_;             ///< of dropout and stochastic depth
  std::vector<std::unique_ptr<Model>> models_;
  StepClock clock_;
};

}  // namespace sdp
