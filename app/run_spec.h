#pragma once

// The spec in a run folder, for the commands that work on a finished or interrupted run.

#include "commands.h"
#include "experiment/experiment.h"

namespace sdp {

/// The spec of the run's newest checkpoint with the overrides, which may only change how it is evaluated.
/// Throws UsageError for other overrides and if the folder is not a run folder; DataError if it has no
/// checkpoint, or a damaged one.
ExperimentSpec spec_of(const RunArguments& run);

/// plan.json of the run's newest checkpoint, which contains its owner sets.
std::filesystem::path plan_of(const RunArguments& run);

/// The experiment in a single process, with the run's owner sets.
Experiment experiment_of(const ExperimentSpec& spec, const RunArguments& run);

}  // namespace sdp
