#include "hub/export_run.h"

#include <unistd.h>

#include <cstdio>

#include "checkpoint/checkpointing.h"
#include "device/device.h"
#include "eval/evaluation.h"
#include "feed/feed.h"
#include "hub/export.h"
#include "telemetry/progress.h"
#include "telemetry/run_folder.h"
#include "train/run_data.h"
#include "train/run_text.h"

namespace sdp {
namespace {

/// The branch scale of the spec; for `auto` the one chosen by the run's last evaluation, or nothing if there
/// was none.
std::optional<double> branch_scale_to_export(const Experiment& experiment,
                                             const std::filesystem::path& run_dir, const Manifest& manifest) {
  if (const std::optional<double> fixed = fixed_branch_scale(experiment)) return fixed;
  const std::optional<EvalRecord> evaluation = find_evaluation(RunFolder{run_dir}.metrics(), manifest.step);
  if (!evaluation) return std::nullopt;
  std::printf(
      "branch scale %g, which the evaluation after step %lld found better (eval.branch_scale: auto)\n",
      evaluation->branch_scale, static_cast<long long>(manifest.step));
  return evaluation->branch_scale;
}

/// Reads training data only if a correction needs them.
void correct(FullModel& model, const Experiment& experiment, std::optional<double> branch_scale,
             const std::filesystem::path& checkpoint, ProgressLine& line) {
  const ExperimentSpec& spec = experiment.spec;
  const int64_t recalibrate_batches = batches_to_recalibrate(experiment);
  if (branch_scale && recalibrate_batches == 0) return model.set_branch_scale(*branch_scale);
  if (recalibrate_batches > 0)
    std::printf("BatchNorm statistics of %lld training batches (eval.recalibrate_batches)\n",
                static_cast<long long>(recalibrate_batches));
  std::fflush(stdout);
  const auto train = open_split(spec, Split::kTrain, line);
  const std::unique_ptr<Communicator> comm =
      connect(Ranks{}, at::kCPU, {.timeout = std::chrono::seconds(spec.train.collective_timeout_s)});
  const FeedSource source(*train, spec.data, spec.train.precision, at::kCPU);
  const auto on_skipped = [&](const std::string& message) { line.print_skipped(message); };
  Evaluator evaluator(experiment, source, source, *comm, line, on_skipped, checkpoint);
  if (const auto trial = evaluator.correct(model, branch_scale))
    std::printf("%s\n", describe(*trial, model.branch_scale()).c_str());
}

}  // namespace

void export_run(ExperimentSpec spec, const ExportRequest& request) {
  // Exports the master values, whatever the precision of the run.
  if (spec.train.precision == Precision::kBf16) spec.train.precision = Precision::kFp32;
  const std::filesystem::path plan = CheckpointStore(request.run_dir).verified_file(request.step, kSavedPlan);
  const Experiment experiment = make_experiment(spec, /*processes=*/1, plan);
  const ExportOrigin origin = prepare_export(spec, request.run_dir, request.out);
  use_own_cores();
  ProgressLine line(STDERR_FILENO);
  const CheckpointReader reader = [&] {
    Work work(line, "verifying the checkpoint");
    return CheckpointReader(request.run_dir, request.step, /*verify_hashes=*/true, work.on_progress());
  }();
  if (request.worker) {
    Work work(line, "exporting the subnetwork");
    export_subnetwork(reader, experiment, *request.worker, origin, request.out, work.on_progress());
  } else {
    SavedFullModel model(experiment.plan, reader, spec, at::kCPU,
                         request.average ? ModelValues::kAverage : ModelValues::kCurrent);
    correct(model, experiment, branch_scale_to_export(experiment, request.run_dir, reader.manifest()),
            reader.folder(), line);
    Work work(line, "exporting the model");
    export_model(model, experiment, reader.manifest(), origin, request.out, work.on_progress());
  }
  std::printf("wrote %s\n", request.out.c_str());
}

}  // namespace sdp
