#pragma once

// A sweep on disk: its runs, the progress of each, and the file that lists them.
//
//   OUTPUT.DIR/NAME/sweep.json     {"name", "runs": [{"name", "folder", "label", "values"}, ...]}
//   OUTPUT.DIR/NAME/POINT/         the run folder of each point
//
// In sweep.json, `folder` is relative to the file, and `values` maps axes to values, both as written in the
// sweep's file.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiment/spec/experiment_spec.h"
#include "experiment/spec/resume.h"
#include "experiment/spec/validate.h"
#include "sweep/points.h"
#include "telemetry/run_folder.h"
#include "telemetry/run_owner.h"

namespace sdp {

enum class RunStage { kToDo, kCut, kDone };

/// Progress of the run in a folder.
struct RunState {
  RunStage stage = RunStage::kToDo;
  int64_t step = 0;  ///< kCut: of the newest checkpoint; kDone: the last step
};

/// Throws DataError if a file of the folder cannot be read.
RunState state_of_run(const RunFolder& folder);

/// A point and the progress of its run.
struct SweepRun {
  SweepPoint point;  ///< its overrides include the run's name and output.dir
  RunFolder folder;
  RunState state = {};
  /// Holder of the run folder's lock, unless it is gone: another sweep's process, perhaps on another host.
  std::optional<RunOwner> owner = {};
  /// Differences between the current spec and that of the run. A started or finished run cannot be part of
  /// the sweep if one of them has an effect.
  std::vector<SpecChange> changes = {};
};

struct Sweep {
  std::string name;
  std::filesystem::path folder;
  std::vector<SweepRun> runs;
};

/// Checks besides the spec that a run needs to start: its plan and its processes. `saved_plan`: of a run that
/// is resumed. Not called for runs that are done or running. Throws UsageError.
using CheckRun =
    std::function<void(const ExperimentSpec&, const std::optional<std::filesystem::path>& saved_plan)>;

/// Loads and checks every point and finds its progress; writes nothing. `overrides`: from the command line,
/// for every run. Throws UsageError naming the point if its spec is refused or the points have different
/// folders, and for an override of a key that an axis sets.
Sweep open_sweep(const SweepSpec& spec, const std::vector<std::string>& overrides, NamedFiles named_files,
                 const CheckRun& check);

/// Throws UsageError for the first run that was made with another spec, so that continuing would mix two
/// specs.
void refuse_changed_runs(const Sweep& sweep);

/// A table of the runs with their state and settings, followed by changes of runs.
std::string describe(const Sweep& sweep);

/// The content of sweep.json.
std::string sweep_json(const Sweep& sweep);

}  // namespace sdp
