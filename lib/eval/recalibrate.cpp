#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include "eval/passes.h"
#include "experiment/print.h"
#include "run/checkpoint_tensors.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// The keys of the spec that the statistics depend on; the others have their defaults.
ExperimentSpec relevant_part(const ExperimentSpec& spec) {
  ExperimentSpec part;
  part.seed = spec.seed;
  part.model = spec.model;
  part.data.set = spec.data.set;
  part.data.augment = spec.data.augment;
  part.train.batch_size_per_worker = spec.train.batch_size_per_worker;
  part.train.precision = spec.train.precision;
  part.eval.recalibrate_batches = spec.eval.recalibrate_batches;
  return part;
}

/// Where the folder of the checkpoint keeps the statistics for the model's branch scale, estimated as the
/// spec says: estimating them takes most of the time of an evaluation after a short run, and the run, `eval`
/// and `export` need the same ones. The name has a hash of all that they depend on besides the checkpoint's
/// values: model, data, batches and precision.
std::filesystem::path kept_statistics(const EvalInputs& inputs, const FullModel& model) {
  const DataIdentity data = inputs.train.identity();
  const std::string hashed =
      fmt::format("{}{} {} {}{}", to_yaml(relevant_part(inputs.experiment.spec)), data.samples, data.hash,
                  model.branch_scale(), model.values() == ModelValues::kAverage ? " average" : "");
  return inputs.checkpoint / fmt::format("statistics-{}", xxh3_128(hashed));
}

/// Whether the model now has the kept statistics; false if there are none, or none that can be read.
bool load_statistics(const std::filesystem::path& path, FullModel& model) try {
  if (!std::filesystem::exists(path)) return false;
  const SafetensorsFile file(path);
  std::map<std::string, at::Tensor> kept;
  for (const auto& [name, buffer] : model.buffers()) {
    const TensorView* view = file.find(name);
    if (!view || view->entry.dtype != DType::kF64 || view->entry.shape != buffer.sizes().vec()) return false;
    kept[name] = as_tensor(*view).to(buffer.options(), /*non_blocking=*/false, /*copy=*/true);
  }
  model.buffers() = kept;
  return true;
} catch (const DataError&) {
  return false;
} catch (const std::filesystem::filesystem_error&) {
  return false;
}

/// Failures are ignored: the folder may be read-only.
void save_statistics(const std::filesystem::path& path, FullModel& model) try {
  TensorFile file;
  for (const auto& [name, buffer] : model.buffers())
    file.add(name, DType::kF64, buffer.sizes().vec(), [&buffer] { return buffer.to(at::kDouble); });
  // Complete or not there, also if two programs write it at once.
  const std::filesystem::path unfinished = fmt::format("{}.{}.tmp", path.string(), getpid());
  file.write(unfinished, {});
  std::filesystem::rename(unfinished, path);
} catch (const DataError&) {
} catch (const std::filesystem::filesystem_error&) {
}

/// BatchNorm statistics, re-estimated as the plain average over training batches passed through the assembled
/// model. Batch i is the i-th of the training order and is run by process i mod W; the average is over all
/// processes' batches.
void estimate_statistics(const EvalInputs& inputs, FullModel& full_model, EvalTimes& times) {
  const ExperimentSpec& spec = inputs.experiment.spec;
  Communicator& comm = inputs.comm;
  const int64_t batches = *spec.eval.recalibrate_batches;
  const int64_t batch_size = std::min(spec.train.batch_size_per_worker, inputs.train.size());
  BoundModel bound = bind(inputs, full_model, /*training=*/true, times);
  timed(times.recalibrate_s, comm.device(), [&] {
    const Passes passes = passes_of(comm, batches);
    const std::unique_ptr<DeviceLoader> loader = inputs.train.training(
        {.geometry = {.workers = comm.size(), .replicas = 1, .accumulate_steps = 1, .batch_size = batch_size},
         .slots = {{.worker = comm.rank(), .replica = 0}},
         .first_step = 0,
         .last_step = passes.mine,
         .seed = static_cast<uint64_t>(spec.seed),
         .augment = {.steps = *spec.data.augment}});  // unmixed, as the test images are
    ProgressTask task(inputs.line, "recalibrating BatchNorm", "batches");
    for_each_batch(inputs, *loader, passes, bound.mode, task.on_progress(),
                   [&](int64_t number, const TensorBatch& batch) {
                     bound.mode.batch_norm_momentum = 1.0 / static_cast<double>(number + 1);
                     bound.model->forward(batch.input, bound.mode);
                   });
    leave_if_stopped(comm);
    for (auto& [name, buffer] : full_model.buffers()) {
      // A process without a batch still has the averages of training, which must not count.
      buffer.mul_(static_cast<double>(passes.mine) / static_cast<double>(batches));
      comm.all_reduce_sum(buffer);
    }
  });
}

}  // namespace

int64_t batches_to_recalibrate(const Experiment& experiment) {
  return experiment.plan.layout.buffers.empty() ? 0 : *experiment.spec.eval.recalibrate_batches;
}

void recalibrate(const EvalInputs& inputs, FullModel& full_model, EvalTimes& times) {
  if (inputs.checkpoint.empty()) return estimate_statistics(inputs, full_model, times);
  const std::filesystem::path kept = kept_statistics(inputs, full_model);
  // Several processes might not find the same.
  if (inputs.comm.size() == 1 && load_statistics(kept, full_model)) return;
  estimate_statistics(inputs, full_model, times);
  if (inputs.comm.rank() == 0) save_statistics(kept, full_model);
}

}  // namespace sdp
