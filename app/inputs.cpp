#include "inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "eval/best.h"
#include "run/checkpoint_store.h"
#include "run/metrics.h"
#include "run/run_folder.h"
#include "spec/error.h"
#include "spec/value_text.h"

namespace sdp {
namespace {

/// The step of the run's newest checkpoint.
int64_t newest_step(const RunArguments& run) {
  check_run_files(RunFolder{run.run_dir}, /*to_write=*/false);
  if (const std::optional<int64_t> step = CheckpointStore(run.run_dir).latest_step()) return *step;
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

/// Of the evaluations that can be compared with the last one.
struct BestCheckpoint {
  std::optional<int64_t> step = {};       ///< of the best that has a checkpoint
  std::optional<int64_t> best_step = {};  ///< of the best of all
};

BestCheckpoint best_checkpoint(const std::filesystem::path& run_dir) {
  const std::vector<EvalRecord> all = evaluations(RunFolder{run_dir}.metrics());
  if (all.empty()) return {};
  const auto step = [&](bool with_checkpoint) {
    const auto best = best_evaluations(run_dir, with_checkpoint);
    const auto found = best.find(all.back().measure.value_or(""));
    return found == best.end() ? std::nullopt : std::optional(found->second.step);
  };
  return {.step = step(true), .best_step = step(false)};
}

}  // namespace

ChosenCheckpoint choose_checkpoint(const RunArguments& run) {
  ChosenCheckpoint chosen{.run_dir = run.run_dir, .overrides = run.overrides, .step = newest_step(run)};
  if (run.checkpoint.empty()) return chosen;
  const std::vector<int64_t> steps = CheckpointStore(run.run_dir).steps();
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("--checkpoint {}: {}; {} has checkpoints of the steps {}", run.checkpoint,
                                 why, run.run_dir.string(), fmt::join(steps, ", ")));
  };
  if (run.checkpoint == kBestCheckpoint) {
    const BestCheckpoint best = best_checkpoint(run.run_dir);
    if (!best.step)
      refuse(best.best_step ? fmt::format("the best evaluation is of step {}, and neither its "
                                          "checkpoint nor that of a comparable one is there",
                                          *best.best_step)
                            : "no evaluation was recorded");
    chosen.step = *best.step;
    const std::string deleted =
        best.best_step == best.step
            ? ""
            : fmt::format("; the evaluation of step {} was better, but it has no checkpoint",
                          *best.best_step);
    std::fprintf(stderr, "--checkpoint best: step %lld%s\n", static_cast<long long>(chosen.step),
                 deleted.c_str());
    return chosen;
  }
  const auto named = std::find_if(steps.begin(), steps.end(),
                                  [&](int64_t step) { return std::to_string(step) == run.checkpoint; });
  if (named == steps.end()) refuse("expected a step with a checkpoint, or best");
  chosen.step = *named;
  return chosen;
}

ExperimentSpec spec_of(const ChosenCheckpoint& checkpoint) {
  const std::filesystem::path saved =
      CheckpointStore(checkpoint.run_dir).verified_file(checkpoint.step, kSavedSpec);
  constexpr auto kFree =
      std::to_array<std::string_view>({"eval.", "data.path=", "data.index_dir=", "data.loader_threads=",
                                       "data.location=", "data.on_error=", "train.device="});
  for (const std::string& assignment : checkpoint.overrides)
    if (std::none_of(kFree.begin(), kFree.end(),
                     [&](std::string_view key) { return assignment.starts_with(key); }))
      throw UsageError(
          fmt::format("--set {}: cannot change in an existing run; expected a key of eval, data.path, "
                      "data.index_dir, data.loader_threads, data.location, data.on_error or train.device",
                      assignment));
  return load_saved_spec(saved, checkpoint.overrides);
}

LoadedSpec load_spec_of_run(const std::filesystem::path& run_dir, const std::vector<std::string>& overrides,
                            NamedFiles named_files) {
  namespace fs = std::filesystem;
  const fs::path dir = run_dir.has_filename() ? run_dir : run_dir.parent_path();
  const fs::path file = dir / kSavedSpec;
  if (!fs::exists(file))
    throw UsageError(
        fmt::format("--run {}: has no spec.yaml. Expected the folder of a run.", run_dir.string()));
  LoadedSpec before = load_run_spec({file}, {}, NamedFiles::kNotNeeded);
  unset_defaults(before.spec);  // that spec.yaml has resolved: what they follow from may change
  std::vector<std::string> assignments;
  for_each_value(before.spec.eval, "eval", [&](const std::string& key, const FieldInfo&, const auto& value) {
    if (yaml_text(value) == "null") assignments.push_back(key + "=null");
  });
  assignments.insert(assignments.end(), overrides.begin(), overrides.end());
  LoadedSpec loaded = load_run_spec({file}, assignments, named_files);
  const std::vector<std::string>& written = before.warnings;
  std::erase_if(loaded.warnings, [&](const std::string& warning) {
    return std::find(written.begin(), written.end(), warning) != written.end();
  });
  // The folder may have been moved.
  OutputSpec& output = loaded.spec.output;
  if (fs::weakly_canonical(fs::path(output.dir) / loaded.spec.name) == fs::weakly_canonical(dir))
    return loaded;
  output.dir = dir.has_parent_path() ? dir.parent_path().string() : ".";
  loaded.spec.name = dir.filename().string();
  return loaded;
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || !std::filesystem::is_directory(folder))
    throw UsageError(fmt::format("--out {}: cannot be created ({}). Expected a folder, existing or new.",
                                 folder.string(), error ? error.message() : "it is a file"));
}

}  // namespace sdp
