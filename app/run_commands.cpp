#include <ATen/ATen.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "commands.h"
#include "data/device_loader.h"
#include "engine/device.h"
#include "engine/full_model.h"
#include "eval/evaluation.h"
#include "eval/predictions.h"
#include "hub/export.h"
#include "inputs.h"
#include "model/make_model.h"
#include "run/checkpoint_reader.h"
#include "run/checkpoint_tensors.h"
#include "run/progress.h"
#include "run/restore_checkpoint.h"
#include "run/resumed_run.h"
#include "run/run_data.h"
#include "run/run_text.h"
#include "spec/error.h"

namespace sdp {
namespace {

void write_logits(const std::filesystem::path& path, const Predictions& predictions) {
  TensorFile file;
  file.add("labels", DType::kI64, predictions.labels.sizes().vec(), [&] { return predictions.labels; });
  file.add("logits", DType::kF32, predictions.logits.sizes().vec(),
           [&] { return predictions.logits.to(at::kFloat); });
  file.add("samples", DType::kI64, predictions.samples.sizes().vec(), [&] { return predictions.samples; });
  file.write(path, {});
}

void print_evaluation(const EvalRecord& record, const std::optional<ConfusionMatrix>& by_class,
                      const std::vector<std::string>& class_names, bool as_json) {
  if (!as_json) {
    std::printf("%s\n%s", describe(record).c_str(),
                by_class ? by_class_text(*by_class, class_names).c_str() : "");
    return;
  }
  std::string line = to_json_line(record);
  if (by_class) {
    auto json = nlohmann::ordered_json::parse(line);
    json.update(by_class_json(*by_class));
    line = json.dump();
  }
  std::printf("%s\n", line.c_str());
}

/// Verifies the hashes.
CheckpointReader open_checkpoint(const ChosenCheckpoint& checkpoint, ProgressLine& line) {
  ProgressTask task(line, "verifying the checkpoint");
  return {checkpoint.run_dir, checkpoint.step, /*verify_hashes=*/true, task.on_progress()};
}

}  // namespace

int eval_command(const EvalArguments& arguments) {
  const ChosenCheckpoint checkpoint = choose_checkpoint(arguments.run);
  const Experiment experiment =
      read_saved_experiment(CheckpointStore(checkpoint.run_dir), checkpoint.step, spec_of(checkpoint));
  const bool predicts = arguments.per_class || !arguments.logits.empty() || !arguments.predictions.empty();
  if (predicts && experiment.spec.data.is_of_tokens())
    throw UsageError(
        "--per-class, --logits and --predictions are about images, which have one label each; a language "
        "model "
        "predicts every token. Leave them out.");
  const at::Device device = choose_device(experiment.spec.train.device, Ranks{});
  prepare_device(device);
  use_own_cores();
  const std::unique_ptr<Communicator> comm =
      connect(Ranks{}, device, {.timeout = std::chrono::seconds(experiment.spec.train.collective_timeout_s)});
  ProgressLine line(STDERR_FILENO);
  const CheckpointReader reader = open_checkpoint(checkpoint, line);
  const auto model = saved_full_model(experiment, reader, device, ModelValues::kCurrent);
  const auto train = open_split(experiment.spec, Split::kTrain, line);
  const auto evaluated =
      open_split(experiment.spec, arguments.train_data ? Split::kTrain : Split::kTest, line);
  const DeviceDataset train_source(*train, experiment.spec.data, experiment.spec.train.precision, device);
  const DeviceDataset source(*evaluated, experiment.spec.data, experiment.spec.train.precision, device);
  const auto on_skipped = [&](const std::string& message) { line.print_skipped(message); };
  const EvalInputs inputs{experiment, train_source, source, *comm, line, on_skipped, reader.folder()};
  EvaluatedModels models{.full = *model};
  if (has_average(reader.manifest(), experiment.spec))
    models.make_average = [&] { return saved_full_model(experiment, reader, device, ModelValues::kAverage); };
  models.workers.resize(static_cast<size_t>(experiment.plan.workers));
  std::iota(models.workers.begin(), models.workers.end(), 0);
  std::unique_ptr<TensorSource> tensors;
  std::unique_ptr<Model> subnetwork;
  models.subnetwork = [&](size_t i) -> Model& {
    subnetwork.reset();
    const int worker = models.workers[i];
    tensors = saved_subnetwork(experiment, reader, device, worker);
    subnetwork = make_subnetwork(experiment.spec.model, experiment.plan, worker, *tensors);
    return *subnetwork;
  };
  EvalRecord record = evaluate(inputs, models);
  record.step = reader.manifest().step;
  record.on_training_data = arguments.train_data;
  std::optional<ConfusionMatrix> by_class;
  if (predicts) {
    const Predictions predictions = predict(inputs, *model);
    if (!arguments.logits.empty()) write_logits(arguments.logits, predictions);
    if (!arguments.predictions.empty()) write_predictions_csv(arguments.predictions, predictions, *evaluated);
    if (arguments.per_class) by_class = confusion_matrix(predictions);
  }
  print_evaluation(record, by_class, experiment.spec.data.class_names(), arguments.json);
  return 0;
}

int export_command(const ExportArguments& arguments) {
  const ChosenCheckpoint checkpoint = choose_checkpoint(arguments.run);
  export_run(spec_of(checkpoint), {.run_dir = checkpoint.run_dir,
                                   .step = checkpoint.step,
                                   .out = arguments.out,
                                   .worker = arguments.worker,
                                   .average = arguments.average});
  return 0;
}

}  // namespace sdp
