#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/checkpoint_tensors.h"
#include "checkpoint/checkpointing.h"
#include "checkpoint/files/store.h"
#include "commands.h"
#include "device/device.h"
#include "eval/evaluation.h"
#include "feed/feed.h"
#include "hub/export.h"
#include "inputs.h"
#include "model/make_model.h"
#include "spec/error.h"
#include "telemetry/progress.h"
#include "train/best.h"
#include "train/run_data.h"
#include "train/run_text.h"

namespace sdp {
namespace {

/// The subnetworks of a checkpoint, one at a time.
void add_subnetworks(Evaluator& evaluator, EvalRecord& record, const Experiment& experiment,
                     const CheckpointReader& reader, at::Device device) {
  std::vector<int> workers(static_cast<size_t>(experiment.plan.workers));
  std::iota(workers.begin(), workers.end(), 0);
  std::unique_ptr<SavedSubnetwork> tensors;
  std::unique_ptr<Model> model;
  evaluator.add_subnetworks(record, workers, [&](size_t i) -> Model& {
    model.reset();
    tensors = std::make_unique<SavedSubnetwork>(experiment.plan, reader, experiment.spec, device, workers[i]);
    model = make_subnetwork(experiment.spec.model, experiment.plan, workers[i], *tensors);
    return *model;
  });
}

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

/// The checkpoint that is asked for, its hashes verified.
CheckpointReader open_checkpoint(const RunArguments& run, ProgressLine& line) {
  Work work(line, "verifying the checkpoint");
  return {run.run_dir, step_of_checkpoint(run), /*verify_hashes=*/true, work.on_progress()};
}

}  // namespace

int eval_command(const EvalArguments& arguments) {
  const RunArguments run = with_step(arguments.run);
  const Experiment experiment = experiment_of(spec_of(run), run);
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
  const CheckpointReader reader = open_checkpoint(run, line);
  SavedFullModel model(experiment.plan, reader, experiment.spec, device);
  const auto train = open_split(experiment.spec, Split::kTrain, line);
  const auto evaluated =
      open_split(experiment.spec, arguments.train_data ? Split::kTrain : Split::kTest, line);
  const FeedSource train_source(*train, experiment.spec.data, experiment.spec.train.precision, device);
  const FeedSource source(*evaluated, experiment.spec.data, experiment.spec.train.precision, device);
  const auto on_skipped = [&](const std::string& message) { line.print_skipped(message); };
  Evaluator evaluator(experiment, train_source, source, *comm, line, on_skipped, reader.folder());
  EvalRecord record = evaluator.evaluate(model);
  record.step = reader.manifest().step;
  record.on_training_data = arguments.train_data;
  if (has_average(reader.manifest(), experiment.spec)) {
    SavedFullModel average(experiment.plan, reader, experiment.spec, device, ModelValues::kAverage);
    evaluator.add_average(record, average);
  }
  add_subnetworks(evaluator, record, experiment, reader, device);
  std::optional<ConfusionMatrix> by_class;
  if (predicts) {
    const Predictions predictions = evaluator.predict(model);
    if (!arguments.logits.empty()) write_logits(arguments.logits, predictions);
    if (!arguments.predictions.empty()) write_predictions_csv(arguments.predictions, predictions, *evaluated);
    if (arguments.per_class) by_class = confusion_matrix(predictions);
  }
  print_evaluation(record, by_class, experiment.spec.data.class_names(), arguments.json);
  return 0;
}

int export_command(const ExportArguments& arguments) {
  const RunArguments run = with_step(arguments.run);
  export_run(spec_of(run), {.run_dir = run.run_dir,
                            .step = step_of_checkpoint(run),
                            .out = arguments.out,
                            .worker = arguments.worker,
                            .average = arguments.average});
  return 0;
}

}  // namespace sdp
