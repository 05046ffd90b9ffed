#pragma once

// The spec of a run's folder, for the commands that look at a finished or interrupted run.

#include "commands.h"
#include "experiment/experiment.h"

namespace sdp {

/// The spec that the run's newest checkpoint was made with, and the overrides, which may only change how it
/// is evaluated. UsageError for others, and where the folder is not that of a run; DataError where it has no
/// checkpoint, or a damaged one.
ExperimentSpec spec_of(const RunArguments& run);

/// plan.json of the run's newest checkpoint, which has its owner sets.
std::filesystem::path plan_of(const RunArguments& run);

/// In one process, with the run's own owners.
Experiment experiment_of(const ExperimentSpec& spec, const RunArguments& run);

}  // namespace sdp
