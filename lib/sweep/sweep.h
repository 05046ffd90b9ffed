#pragma once

// A sweep on disk: its runs, how far each is, and the file that names them.
//
//   OUTPUT.DIR/NAME/sweep.json     {"name", "runs": [{"name", "folder", "label", "values"}, ...]}
//   OUTPUT.DIR/NAME/POINT/         the run folder of each point
//
// In sweep.json `folder` is relative to the file, and `values` is an object of axis to value, both texts as
// in the sweep's file.

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

/// How far the run in a folder is.
struct RunState {
  RunStage stage = RunStage::kToDo;
  int64_t step = 0;  ///< kCut: of the newest checkpoint; kDone: the last one
};

/// Throws DataError where a file of the folder cannot be read.
RunState state_of_run(const RunFolder& folder);

/// A point and how far its run is.
struct SweepRun {
  SweepPoint point;  ///< with the name and output.dir of the run among its overrides
  RunFolder folder;
  RunState state = {};
  /// Who holds the run folder's lock, without being gone: another sweep's run, perhaps on another host.
  std::optional<RunOwner> owner = {};
  /// What the spec now says otherwise than that of the run. A run that is cut or done and for which one of
  /// them has an effect cannot be part of the sweep.
  std::vector<SpecChange> changes = {};
};

struct Sweep {
  std::string name;
  std::filesystem::path folder;
  std::vector<SweepRun> runs;
};

/// What has to be in order besides a run's spec for it to start: its plan, its processes. `saved_plan`: of a
/// run that goes on. Not asked of a run that is done or at work. Throws UsageError.
using CheckRun =
    std::function<void(const ExperimentSpec&, const std::optional<std::filesystem::path>& saved_plan)>;

/// Loads and checks every point, and looks how far its run is; writes nothing. `overrides`: of the command
/// line, for every run. Throws UsageError naming the point: its spec is refused, or the points have different
/// folders; and for an override of what an axis sets.
Sweep open_sweep(const SweepSpec& spec, const std::vector<std::string>& overrides, NamedFiles named_files,
                 const CheckRun& check);

/// Throws UsageError for the first run that was made with another spec, so that going on would mix two.
void refuse_changed_runs(const Sweep& sweep);

/// A table of the runs with their state and what each sets; changes of runs below it.
std::string describe(const Sweep& sweep);

/// sweep.json.
std::string sweep_json(const Sweep& sweep);

}  // namespace sdp
