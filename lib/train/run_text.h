#pragma once

// What a run and its plan look like in words.

#include <optional>
#include <string>

#include "plan/run_steps.h"
#include "telemetry/metrics.h"

namespace sdp {

/// The assembled model's accuracy and loss, what they are without corrections, those of the single
/// subnetworks, and how much of the test set that is where it is not all of it. Of a language model: loss and
/// perplexity. On lines of their own how the branch scale was chosen, and a subnetwork that is better than
/// the assembled model.
std::string describe(const EvalRecord& record);
/// One line: losses with either branch scale, and which one was taken.
std::string describe(const BranchScaleTrial& trial, double branch_scale);

/// A few lines at the start of a run: model, workers, coverage, processes, device.
std::string describe_start(const Experiment& experiment, const std::string& device);

/// Steps, epochs and where they come from.
std::string describe_length(const Experiment& experiment, const RunSteps& steps);

/// What to say where a step waits for its batches for a fifth of its time or more; nothing where it does not.
std::optional<std::string> slow_data_warning(double step_ms, double wait_ms, const DataSpec& data);

}  // namespace sdp
