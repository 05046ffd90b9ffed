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

/// The run's saved spec with the overrides. Its warnings are idle: a saved spec sets every key.
ExperimentSpec spec_of(const RunArguments& run, DataFolder data_folder) {
  const std::filesystem::path saved = run.run_dir / "spec.yaml";
  if (!std::filesystem::exists(saved))
    throw UsageError(
        "--run " + run.run_dir.string() +
        ": expected the folder of a run, which has a spec.yaml. Runs are under output.dir/name.");
  return load_spec({saved}, run.overrides, data_folder).spec;
}

void write_logits(const std::filesystem::path& path, const at::Tensor& logits, const ImageDataset& test) {
  const at::Tensor values = logits.to(at::kCPU, at::kFloat).contiguous();
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < test.size(); ++i)
    labels.push_back(test.label(i));
  SafetensorsWriter writer(
      path, {{"labels", DType::kI64, {test.size()}}, {"logits", DType::kF32, values.sizes().vec()}});
  writer.write(std::as_bytes(std::span(labels)));
  writer.write(std::span(static_cast<const std::byte*>(values.data_ptr()), values.nbytes()));
  writer.finish();
}

}  // namespace

int eval_command(const EvalArguments& arguments) {
  const Experiment experiment = make_experiment(spec_of(arguments.run, DataFolder::kMustExist), 1);
  const at::Device device = choose_device(experiment.spec.train.device, /*local_rank=*/0);
  use_cores_of_one_process(/*local_world=*/1);
  const std::unique_ptr<Communicator> comm = connect(Ranks{}, device, kCollectiveTimeout);
  const CheckpointReader reader(arguments.run.run_dir, std::nullopt, /*verify_hashes=*/true);
  const auto train = open_dataset(experiment.spec.data, Split::kTrain);
  const auto test = open_dataset(experiment.spec.data, Split::kTest);
  SavedFullModel model(experiment.plan, reader, experiment.spec, device);
  Evaluator evaluator(experiment, *train, *test, *comm);
  EvalRecord record = evaluator.evaluate(model);
  record.step = reader.manifest().step;
  if (!arguments.logits.empty()) write_logits(arguments.logits, evaluator.logits(model), *test);
  std::printf("%s\n", (arguments.json ? to_json_line(record) : describe(record)).c_str());
  return 0;
}

int export_command(const ExportArguments& arguments) {
  export_model(spec_of(arguments.run, DataFolder::kNotNeeded), arguments.run.run_dir, arguments.out);
  std::printf("wrote %s\n", arguments.out.c_str());
  return 0;
}

}  // namespace sdp
