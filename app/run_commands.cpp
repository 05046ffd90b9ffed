#include <ATen/ATen.h>

#include <cstdio>

#include "checkpoint/safetensors.h"
#include "commands.h"
#include "spec/error.h"
#include "spec/load.h"
#include "train/checkpointing.h"
#include "train/device.h"
#include "train/evaluation.h"
#include "train/export.h"
#include "train/run_text.h"

namespace sdp {
namespace {

/// The run's saved spec with the overrides, which may only change how it is evaluated. Its warnings are idle:
/// a saved spec sets every key.
ExperimentSpec spec_of(const RunArguments& run) {
  const std::filesystem::path saved = run.run_dir / "spec.yaml";
  if (!std::filesystem::exists(saved))
    throw UsageError(
        "--run " + run.run_dir.string() +
        ": expected the folder of a run, which has a spec.yaml. Runs are under output.dir/name.");
  for (const std::string& assignment : run.overrides)
    if (!assignment.starts_with("eval.") && !assignment.starts_with("data.path=") &&
        !assignment.starts_with("train.device="))
      throw UsageError("--set " + assignment +
                       ": a finished run is what it is; expected a key of eval, data.path or train.device");
  return load_spec({saved}, run.overrides, NamedFiles::kNotNeeded).spec;
}

Experiment experiment_of(const ExperimentSpec& spec, const RunArguments& run) {
  return make_experiment(spec, /*processes=*/1, run.run_dir / "plan.json");
}

/// Accuracy of every worker's subnetwork.
std::vector<double> subnetwork_accuracies(const Experiment& experiment, const CheckpointReader& reader,
                                          Evaluator& evaluator, at::Device device) {
  std::vector<double> accuracies;
  for (int worker = 0; worker < experiment.plan.workers; ++worker) {
    const SavedSubnetwork tensors(experiment.plan, reader, experiment.spec, device, worker);
    const std::unique_ptr<Model> model =
        make_subnetwork(experiment.spec.model, experiment.plan, worker, tensors);
    accuracies.push_back(evaluator.evaluate_subnetwork(*model).accuracy);
  }
  return accuracies;
}

void write_logits(const std::filesystem::path& path, const at::Tensor& logits, const Dataset& test) {
  const at::Tensor values = logits.to(at::kCPU, at::kFloat).contiguous();
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < test.size(); ++i)
    labels.push_back(test.eval_batch(i, i + 1).labels.front());
  SafetensorsWriter writer(
      path, {{"labels", DType::kI64, {test.size()}}, {"logits", DType::kF32, values.sizes().vec()}});
  writer.write(std::as_bytes(std::span(labels)));
  writer.write(std::span(static_cast<const std::byte*>(values.data_ptr()), values.nbytes()));
  writer.finish();
}

}  // namespace

int eval_command(const EvalArguments& arguments) {
  const Experiment experiment = experiment_of(spec_of(arguments.run), arguments.run);
  if (!arguments.logits.empty() && experiment.spec.data.name == DatasetName::kTokens)
    throw UsageError(
        "--logits: one row for each image; a language model has one for each token. Leave --logits out.");
  const at::Device device = choose_device(experiment.spec.train.device, Ranks{});
  prepare_device(device);
  use_cores_of_one_process(/*local_world=*/1);
  const std::unique_ptr<Communicator> comm = connect(Ranks{}, device, kCollectiveTimeout);
  const CheckpointReader reader(arguments.run.run_dir, std::nullopt, /*verify_hashes=*/true);
  SavedFullModel model(experiment.plan, reader, experiment.spec, device);
  const auto train = open_dataset(experiment.spec.data, experiment.spec.model, Split::kTrain);
  const auto test = open_dataset(experiment.spec.data, experiment.spec.model, Split::kTest);
  Evaluator evaluator(experiment, *train, *test, *comm);
  EvalRecord record = evaluator.evaluate(model);
  record.step = reader.manifest().step;
  if (has_subnetworks(experiment.plan))
    record.subnetwork_accuracy = subnetwork_accuracies(experiment, reader, evaluator, device);
  if (!arguments.logits.empty()) write_logits(arguments.logits, evaluator.logits(model), *test);
  std::printf("%s\n", (arguments.json ? to_json_line(record) : describe(record)).c_str());
  return 0;
}

int export_command(const ExportArguments& arguments) {
  ExperimentSpec spec = spec_of(arguments.run);
  // Master values, whatever type the run computed in.
  if (spec.train.precision == Precision::kBf16) spec.train.precision = Precision::kFp32;
  const Experiment experiment = experiment_of(spec, arguments.run);
  use_cores_of_one_process(/*local_world=*/1);
  const CheckpointReader reader(arguments.run.run_dir, std::nullopt, /*verify_hashes=*/true);
  if (arguments.worker) {
    export_subnetwork(reader, experiment, *arguments.worker, arguments.out);
    std::printf("wrote %s\n", arguments.out.c_str());
    return 0;
  }
  SavedFullModel model(experiment.plan, reader, spec, at::kCPU);
  model.set_branch_scale(branch_scale_of(experiment));
  const int64_t recalibrate_batches = model.buffers().empty() ? 0 : *spec.eval.recalibrate_batches;
  if (recalibrate_batches > 0) {
    std::printf("recalibrating BatchNorm statistics on %lld training batches (eval.recalibrate_batches)\n",
                static_cast<long long>(recalibrate_batches));
    const auto train = open_dataset(spec.data, spec.model, Split::kTrain);
    const std::unique_ptr<Communicator> comm = connect(Ranks{}, at::kCPU, kCollectiveTimeout);
    Evaluator(experiment, *train, *train, *comm).recalibrate(model);
  }
  export_model(model, experiment, reader.manifest(), recalibrate_batches, arguments.out);
  std::printf("wrote %s\n", arguments.out.c_str());
  return 0;
}

}  // namespace sdp
