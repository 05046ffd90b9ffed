#include "run_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "checkpoint/files/store.h"
#include "experiment/spec/load.h"
#include "spec/error.h"
#include "telemetry/run_folder.h"

namespace sdp {

namespace {

/// One file of the run's newest checkpoint.
std::filesystem::path saved_file(const RunArguments& run, const char* name) {
  check_run_files(RunFolder{run.run_dir}, /*to_write=*/false);
  const CheckpointStore store(run.run_dir);
  if (const std::optional<int64_t> step = store.latest_step()) return store.verified_file(*step, name);
  // A folder of the run rather than the run.
  for (std::filesystem::path above = std::filesystem::absolute(run.run_dir).lexically_normal();
       above.has_relative_path(); above = above.parent_path())
    if (CheckpointStore(above.parent_path()).latest_step())
      throw UsageError(
          fmt::format("--run {}: expected the folder of a run; this is inside of one. Use --run {}",
                      run.run_dir.string(), above.parent_path().string()));
  if (!std::filesystem::exists(RunFolder{run.run_dir}.spec()))
    throw UsageError(
        "--run " + run.run_dir.string() +
        ": expected the folder of a run, which has a spec.yaml. Runs are under output.dir/name.");
  throw DataError(fmt::format("{}: no checkpoint in this run folder. Train first, or name another folder.",
                              run.run_dir.string()));
}

}  // namespace

ExperimentSpec spec_of(const RunArguments& run) {
  const std::filesystem::path saved = saved_file(run, kSavedSpec);
  constexpr auto kFree =
      std::to_array<std::string_view>({"eval.", "data.path=", "data.index_dir=", "data.loader_threads=",
                                       "data.location=", "data.on_error=", "train.device="});
  for (const std::string& assignment : run.overrides)
    if (std::none_of(kFree.begin(), kFree.end(),
                     [&](std::string_view key) { return assignment.starts_with(key); }))
      throw UsageError(
          fmt::format("--set {}: cannot change in an existing run; expected a key of eval, data.path, "
                      "data.index_dir, data.loader_threads, data.location, data.on_error or train.device",
                      assignment));
  return load_saved_spec(saved, run.overrides);
}

std::filesystem::path plan_of(const RunArguments& run) {
  return saved_file(run, kSavedPlan);
}

Experiment experiment_of(const ExperimentSpec& spec, const RunArguments& run) {
  return make_experiment(spec, /*processes=*/1, plan_of(run));
}

}  // namespace sdp
