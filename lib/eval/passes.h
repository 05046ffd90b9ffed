#pragma once

// Passes over samples, of which evaluations and corrections consist. Internal to eval/.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/batches.h"
#include "data/device_loader.h"
#include "engine/device.h"
#include "engine/full_model.h"
#include "eval/evaluation.h"
#include "experiment/experiment.h"
#include "layers/model.h"
#include "process/stopwatch.h"
#include "run/progress.h"

namespace sdp {

struct EvalResult {
  double loss = 0;           ///< mean cross-entropy over the images, or over all predicted tokens
  double accuracy = 0;       ///< share in 0..1
  double accuracy_top5 = 0;  ///< share whose label is among the five largest logits
  int64_t predictions = 0;   ///< number of predicted images or tokens, without damaged images
  double loss_variance = 0;  ///< of a single prediction
};

/// Calls `part` and adds the elapsed time to `total_s`, on CUDA with the work that the part queued.
template <class Part>
void timed(double& total_s, at::Device device, Part part) {
  const Stopwatch stopwatch;
  part();
  synchronize(device);
  total_s += stopwatch.seconds();
}

/// A stop point: leaves the evaluation if all processes do. Call it before collectives.
void leave_if_stopped(Communicator& comm);

/// A full model that can be run: bound as a whole or (streamed) branch by branch.
struct BoundModel {
  std::unique_ptr<Model> model;
  ForwardMode mode;
};
/// The full model must outlive the result. Collective.
BoundModel bind(const EvalInputs& inputs, FullModel& full_model, bool training, EvalTimes& times);

/// This process's number of passes among those that all processes make together.
struct Passes {
  int64_t mine;  ///< passes with a batch
  int64_t all;   ///< passes of every process, since streamed branches are collective
};
/// Batch i belongs to process i mod W.
Passes passes_of(const Communicator& comm, int64_t batches);

/// Loops over the batches of an evaluation or recalibration, calling use(number, batch) with each.
void for_each_batch(const EvalInputs& inputs, DeviceLoader& loader, Passes passes, const ForwardMode& mode,
                    const OnProgress& on_progress,
                    const std::function<void(int64_t number, const TensorBatch& batch)>& use);

inline EvalBatches eval_batches(const EvalInputs& inputs, std::vector<int64_t> samples) {
  return {.samples = std::move(samples), .batch_size = *inputs.experiment.spec.eval.batch_size};
}

struct EvalResults {
  EvalResult all;
  EvalResult some;
  at::Tensor batch_losses;  ///< [batches] fp64, on the host: mean loss of each batch of `all`
};
/// Runs the full model as it is on samples of `data`. `name`: what is shown. `some`: a subset (ascending)
/// whose result is returned too. Collective.
EvalResults run_full_model(const EvalInputs& inputs, FullModel& full_model, const std::string& name,
                           const DeviceDataset& data, const std::vector<int64_t>& samples, EvalTimes& times,
                           const std::vector<int64_t>& some = {});

/// Re-estimates the BatchNorm statistics, or takes those that the checkpoint's folder keeps. Collective.
void recalibrate(const EvalInputs& inputs, FullModel& full_model, EvalTimes& times);

}  // namespace sdp
