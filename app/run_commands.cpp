#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdio>

#include "commands.h"
#include "feed/feed.h"
#include "run_spec.h"
#include "spec/error.h"
#include "train/checkpointing.h"
#include "train/device.h"
#include "train/evaluation.h"
#include "train/export.h"
#include "train/run_text.h"
#include "train/tensor_file.h"

namespace sdp {
namespace {

void print_skipped(const std::string& message) {
  std::fprintf(stderr, "warning: skipped: %s\n", message.c_str());
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

void write_predictions(const std::filesystem::path& path, const Predictions& predictions) {
  TensorFile file;
  file.add("labels", DType::kI64, predictions.labels.sizes().vec(), [&] { return predictions.labels; });
  file.add("logits", DType::kF32, predictions.logits.sizes().vec(),
           [&] { return predictions.logits.to(at::kFloat); });
  file.write(path, {});
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
  const FeedSource train_source(*train, experiment.spec.data, experiment.spec.train.precision, device);
  const FeedSource test_source(*test, experiment.spec.data, experiment.spec.train.precision, device);
  Evaluator evaluator(experiment, train_source, test_source, *comm, print_skipped);
  EvalRecord record = evaluator.evaluate(model);
  record.step = reader.manifest().step;
  if (has_subnetworks(experiment.plan))
    record.subnetwork_accuracy = subnetwork_accuracies(experiment, reader, evaluator, device);
  if (!arguments.logits.empty()) write_predictions(arguments.logits, evaluator.predict(model));
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
    const FeedSource source(*train, spec.data, spec.train.precision, at::kCPU);
    Evaluator(experiment, source, source, *comm, print_skipped).recalibrate(model);
  }
  export_model(model, experiment, reader.manifest(), recalibrate_batches, arguments.out);
  std::printf("wrote %s\n", arguments.out.c_str());
  return 0;
}

}  // namespace sdp
