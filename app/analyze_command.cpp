#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>

#include "analysis/analysis.h"
#include "commands.h"
#include "engine/device.h"
#include "engine/full_model.h"
#include "engine/train_step.h"
#include "experiment/load.h"
#include "inputs.h"
#include "io/file.h"
#include "layers/tensors.h"
#include "model/model_spec.h"
#include "run/checkpoint_reader.h"
#include "run/progress.h"
#include "run/restore_checkpoint.h"
#include "run/resumed_run.h"
#include "run/run_data.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// The values to analyze, and where they come from.
struct Subject {
  ExperimentSpec spec;
  std::optional<std::filesystem::path> saved_plan;
  std::unique_ptr<Experiment> experiment;  ///< the run's; none at initialization, as what follows
  std::unique_ptr<CheckpointReader> reader;
  std::unique_ptr<FullModel> saved;
  int64_t step = 0;
};

Subject at_initialization(const SpecArguments& arguments) {
  Subject subject;
  LoadedSpec loaded = load_spec(arguments.configs, arguments.overrides);
  print_warnings(loaded.warnings);
  subject.spec = std::move(loaded.spec);
  return subject;
}

/// The hashes of the checkpoint are verified.
Subject of_run(const ChosenCheckpoint& checkpoint) {
  Subject subject;
  subject.spec = spec_of(checkpoint);
  const CheckpointStore store(checkpoint.run_dir);
  subject.saved_plan = store.verified_file(checkpoint.step, kSavedPlan);
  subject.experiment =
      std::make_unique<Experiment>(read_saved_experiment(store, checkpoint.step, subject.spec));
  subject.reader =
      std::make_unique<CheckpointReader>(checkpoint.run_dir, checkpoint.step, /*verify_hashes=*/true);
  subject.saved = saved_full_model(*subject.experiment, *subject.reader, at::kCPU, ModelValues::kCurrent);
  subject.step = checkpoint.step;
  return subject;
}

void check_subject(const AnalyzeArguments& arguments) {
  const bool has_config = !arguments.spec.configs.empty();
  if (has_config != arguments.run_dir.empty())
    throw UsageError(
        "analyze: expected either --config, for a model at initialization, or --run, for a run's newest "
        "checkpoint.");
  if (has_config && arguments.all_checkpoints)
    throw UsageError("--all-checkpoints: a model at initialization has none. Expected --run.");
}

/// Steps of the run's checkpoints that are analyzed, ascending; 0 at initialization.
std::vector<int64_t> steps_to_analyze(const AnalyzeArguments& arguments) {
  if (arguments.run_dir.empty()) return {0};
  const ChosenCheckpoint newest =
      choose_checkpoint({.run_dir = arguments.run_dir, .overrides = arguments.spec.overrides});
  if (arguments.all_checkpoints) return CheckpointStore(arguments.run_dir).steps();
  return {newest.step};
}

Subject subject_of(const AnalyzeArguments& arguments, int64_t step) {
  if (arguments.run_dir.empty()) return at_initialization(arguments.spec);
  return of_run({.run_dir = arguments.run_dir, .overrides = arguments.spec.overrides, .step = step});
}

std::string words_of(const AnalyzeArguments& arguments, const ExperimentSpec& spec,
                     const std::vector<int64_t>& steps) {
  if (arguments.run_dir.empty()) return fmt::format("at initialization (seed {})", spec.seed);
  return fmt::format("of {} at step{} {}", arguments.run_dir.string(), steps.size() == 1 ? "" : "s",
                     fmt::join(steps, ", "));
}

/// At initialization all regimes (with owner sets from a file or a network in Python, those of the spec's
/// construction); for a run its own regime.
std::vector<Regime> regimes_to_analyze(const AnalyzeArguments& arguments, const ExperimentSpec& spec) {
  if (arguments.regimes) return parse_regimes(*arguments.regimes, "--regimes");
  if (!arguments.run_dir.empty()) return {regime_of(spec.subnetwork)};
  const bool is_any = spec.subnetwork.assignment != Assignment::kFile && spec.model.has_slices();
  std::vector<Regime> regimes;
  for (const Regime regime : all_regimes())
    if (is_any || regime.construction == spec.subnetwork.construction) regimes.push_back(regime);
  return regimes;
}

/// Batches in the run's training order that it has not trained on.
AnalysisOptions options_of(const AnalyzeArguments& arguments, const Subject& subject) {
  const auto check = [](const char* option, int64_t value) {
    if (value < 1) throw UsageError(fmt::format("{} {}: expected at least 1", option, value));
  };
  check("--batches", arguments.batches);
  if (arguments.batch_size) check("--batch-size", *arguments.batch_size);
  const int64_t batch_size = arguments.batch_size.value_or(subject.spec.train.batch_size_per_worker);
  const BatchGeometry trained = batch_geometry(subject.spec);
  const StepOrigin origin = subject.reader ? subject.reader->manifest().origin : StepOrigin();
  const int64_t trained_samples = origin.samples_after(subject.step, trained.samples_per_step());
  const int64_t trained_samples_per_worker = (trained_samples + trained.workers - 1) / trained.workers;
  return {.batch_size = batch_size,
          .batches = arguments.batches,
          .step = subject.step,
          .first_step = (trained_samples_per_worker + batch_size - 1) / batch_size};
}

void check_size(const Dataset& dataset, int64_t batch_size) {
  if (batch_size > dataset.size())
    throw UsageError(
        fmt::format("--batch-size {}: the training data has {} samples. Expected at most as many (default: "
                    "train.batch_size_per_worker).",
                    batch_size, dataset.size()));
}

ValuesOf values_of(const Subject& subject) {
  if (subject.saved) return [&subject](int parameter) { return subject.saved->read_one(parameter); };
  return [layout = structure_of(subject.spec.model, subject.spec.data.sequence_length()),
          seed = static_cast<uint64_t>(subject.spec.seed)](int parameter) {
    return draw_parameter(layout.parameters[parameter], seed);
  };
}

}  // namespace

int analyze_command(const AnalyzeArguments& arguments) {
  check_subject(arguments);
  const std::vector<int64_t> steps = steps_to_analyze(arguments);
  Subject subject = subject_of(arguments, steps.back());
  const ExperimentSpec spec = subject.spec;
  AnalysisOptions options = options_of(arguments, subject);
  std::vector<SubnetPlan> plans;
  for (const Regime regime : regimes_to_analyze(arguments, spec))
    plans.push_back(plan_of_regime(spec, regime, subject.saved_plan));
  if (!arguments.out.empty()) make_folder(arguments.out);
  const at::Device device = choose_device(spec.train.device, Ranks{});
  prepare_device(device);
  use_own_cores();
  ProgressLine line(STDERR_FILENO);
  const auto data = open_split(spec, Split::kTrain, line);
  check_size(*data, options.batch_size);
  const DeviceDataset source(*data, spec.data, spec.train.precision, device);

  std::printf("%s %s: %lld workers of coverage %s, %lld x %lld samples each, %s\n",
              std::string(spec.model.name()).c_str(), words_of(arguments, spec, steps).c_str(),
              static_cast<long long>(spec.subnetwork.workers), coverage_text(plans.front()).c_str(),
              static_cast<long long>(options.batches), static_cast<long long>(options.batch_size),
              std::string(name_of(spec.train.precision)).c_str());
  std::fflush(stdout);
  std::vector<RegimeAnalysis> analyses;
  for (const int64_t step : steps) {
    try {
      if (step != subject.step) subject = subject_of(arguments, step);
    } catch (const Error& error) {  // damaged, or removed by the run as it continues
      line.clear();
      std::fprintf(stderr, "warning: passed over step %lld: %s\n", static_cast<long long>(step),
                   error.what());
      continue;
    }
    options = options_of(arguments, subject);
    ProgressTask task(line, "computing gradients", "batches");
    std::vector<RegimeAnalysis> of_step = analyze(
        spec, plans, values_of(subject), source, options, device,
        [&](const std::string& message) { line.print_skipped(message); }, task.on_progress());
    std::move(of_step.begin(), of_step.end(), std::back_inserter(analyses));
  }
  std::printf("\n%s", describe(analyses).c_str());
  if (arguments.out.empty()) return 0;
  write_file_atomically(arguments.out / "similarity.csv", similarity_csv(analyses));
  write_file_atomically(arguments.out / "deviation.csv", deviation_csv(analyses));
  write_file_atomically(arguments.out / "summary.csv", summary_csv(analyses));
  return 0;
}

}  // namespace sdp
