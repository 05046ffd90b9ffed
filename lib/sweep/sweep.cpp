#include "sweep/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/files/store.h"
#include "experiment/spec/load.h"
#include "experiment/spec/regime.h"
#include "spec/error.h"
#include "spec/value_text.h"
#include "telemetry/run_lock.h"
#include "telemetry/run_summary.h"
#include "text/table.h"

namespace sdp {
namespace {

std::string key_of(const std::string& assignment) {
  return assignment.substr(0, assignment.find('='));
}

/// Refuses an override that would apply to every point, whatever the point's name says.
void refuse_overrides(const SweepSpec& spec, const std::vector<std::string>& overrides) {
  for (const std::string& assignment : overrides) {
    const std::string key = key_of(assignment);
    if (key == "name") throw UsageError(fmt::format("--set {}: the sweep names its runs itself", assignment));
    for (const SweepAxis& axis : spec.axes)
      for (const SweepAxisValue& value : axis.values)
        for (const SweepSetting& setting : value.changes.set)
          if (setting.key == key || setting.key.starts_with(key + "."))
            throw UsageError(fmt::format("--set {}: the axis {} sets {}. Change the sweep's file instead.",
                                         assignment, axis.name, setting.key));
  }
}

/// Prepends the point to the message of an error from `call`.
template <class Call>
auto naming(const SweepPoint& point, const Call& call) {
  try {
    return call();
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("point {}: {}", point.name, error.what()));
  }
}

/// A table that labels ZeRO-2 "DDP" would be wrong.
void check_label(const SweepPoint& point, const ExperimentSpec& spec) {
  if (const auto method = contradicted_method(point.label, spec))
    throw UsageError(
        fmt::format("the label '{}' says {}, but the settings are those of {} ({}). Change the label, or "
                    "use the settings of configs/regime.",
                    point.label, *method, method_of(spec), method_settings(spec)));
}

bool has_effect(const SpecChange& change) {
  return change.on_resume != OnResume::kFree;
}

/// Sets the run's progress, and whether another process is running it.
void look_at_folder(SweepRun& run, const ExperimentSpec& spec) {
  check_run_files(run.folder, /*to_write=*/true);
  LockWatch lock(run.folder.dir);
  if (lock.look() != LockWatch::State::kFree) run.owner = lock.owner();
  run.state = state_of_run(run.folder);
  if (run.state.stage == RunStage::kToDo) return;
  ExperimentSpec saved = load_saved_spec(run.folder.spec());
  // Runs are saved with an absolute path. That of a published run may be relative to the working directory.
  make_data_path_absolute(saved);
  run.changes = changes_between(saved, spec);
}

std::string in_words(const SweepRun& run) {
  if (std::any_of(run.changes.begin(), run.changes.end(), has_effect)) return "other spec";
  if (run.owner) return fmt::format("running on {}", run.owner->host);
  switch (run.state.stage) {
    case RunStage::kToDo:
      return "to do";
    case RunStage::kCut:
      return fmt::format("interrupted at step {}", run.state.step);
    case RunStage::kDone:
      return "done";
  }
  return "";
}

/// Settings of the run that are not common to all runs.
std::string own_settings(const Sweep& sweep, const SweepRun& run) {
  // `list`: configs or overrides of a point.
  const auto is_common = [&](const auto& value, const auto& list) {
    return std::all_of(sweep.runs.begin(), sweep.runs.end(), [&](const SweepRun& other) {
      const auto& values = other.point.*list;
      return std::find(values.begin(), values.end(), value) != values.end();
    });
  };
  std::vector<std::string> own;
  for (const std::filesystem::path& config : run.point.configs)
    if (!is_common(config, &SweepPoint::configs)) own.push_back(config.string());
  for (const std::string& assignment : run.point.overrides)
    if (key_of(assignment) != "name" && !is_common(assignment, &SweepPoint::overrides))
      own.push_back(assignment);
  return fmt::format("{}", fmt::join(own, " "));
}

}  // namespace

RunState state_of_run(const RunFolder& folder) {
  std::error_code ignored;
  const std::optional<RunSummary> summary = read_summary(folder.summary());
  const std::optional<int64_t> saved = CheckpointStore(folder.dir).latest_step();
  if (!std::filesystem::exists(folder.spec(), ignored) || (!summary && !saved)) return {};
  if (summary && summary->step >= summary->total_steps)
    return {.stage = RunStage::kDone, .step = summary->step};
  return {.stage = RunStage::kCut, .step = saved.value_or(0)};
}

Sweep open_sweep(const SweepSpec& spec, const std::vector<std::string>& overrides, NamedFiles named_files,
                 const CheckRun& check) {
  refuse_overrides(spec, overrides);
  Sweep sweep = {.name = spec.name, .folder = {}, .runs = {}};
  for (SweepPoint& point : expand(spec)) {
    SweepRun run = {.point = std::move(point), .folder = {}};
    std::vector<std::string>& own = run.point.overrides;
    own.insert(own.end(), overrides.begin(), overrides.end());
    own.push_back("name=" + yaml_text(run.point.name));
    naming(run.point, [&] {
      ExperimentSpec experiment = load_run_spec(run.point.configs, own, named_files).spec;
      check_label(run.point, experiment);
      const std::filesystem::path folder = std::filesystem::path(experiment.output.dir) / spec.name;
      if (sweep.runs.empty()) sweep.folder = folder;
      if (folder != sweep.folder)
        throw UsageError(
            fmt::format("output.dir is {}, but {} for the first point. Name one folder for all "
                        "runs in the sweep's file: set: {{output.dir: runs}}",
                        experiment.output.dir, sweep.folder.parent_path().string()));
      experiment.output.dir = sweep.folder.string();
      own.push_back("output.dir=" + yaml_text(experiment.output.dir));
      run.folder.dir = sweep.folder / run.point.name;
      look_at_folder(run, experiment);
      if (run.state.stage == RunStage::kDone || run.owner) return;
      check(experiment,
            run.state.stage == RunStage::kCut
                ? std::optional(CheckpointStore(run.folder.dir).verified_file(run.state.step, kSavedPlan))
                : std::nullopt);
    });
    sweep.runs.push_back(std::move(run));
  }
  return sweep;
}

void refuse_changed_runs(const Sweep& sweep) {
  for (const SweepRun& run : sweep.runs)
    for (const SpecChange& change : run.changes)
      if (has_effect(change))
        throw UsageError(
            fmt::format("point {}: the run in {} was made with a different {}. Remove that folder to run it "
                        "again, or give the sweep another name.",
                        run.point.name, run.folder.dir.string(), change.text()));
}

std::string describe(const Sweep& sweep) {
  TextTable table({"run", "state", "sets"});
  std::string changes;
  for (const SweepRun& run : sweep.runs) {
    table.add_row({run.point.name, in_words(run), own_settings(sweep, run)});
    for (const SpecChange& change : run.changes)
      changes += fmt::format("{}: the run has a different {}\n", run.point.name, change.text());
  }
  return table.str() + changes;
}

std::string sweep_json(const Sweep& sweep) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const SweepRun& run : sweep.runs) {
    nlohmann::ordered_json values = nlohmann::ordered_json::object();
    for (const auto& [axis, value] : run.point.values)
      values[axis] = value;
    runs.push_back({{"name", run.point.name},
                    {"folder", run.point.name},
                    {"label", run.point.label},
                    {"values", std::move(values)}});
  }
  return nlohmann::ordered_json{{"name", sweep.name}, {"runs", std::move(runs)}}.dump(2) + "\n";
}

}  // namespace sdp
