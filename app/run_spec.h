#pragma once

// The spec of a run's folder, for the commands that look at a finished or interrupted run.

#include "commands.h"
#include "train/experiment.h"

namespace sdp {

/// The run's saved spec with the overrides, which may only change how it is evaluated. UsageError for others,
/// and where the folder is not that of a run.
ExperimentSpec spec_of(const RunArguments& run);

/// In one process, with the run's own owners.
Experiment experiment_of(const ExperimentSpec& spec, const RunArguments& run);

}  // namespace sdp
