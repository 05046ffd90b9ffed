#pragma once

// What a run and its plan look like in words.

#include <optional>
#include <string>

#include "report/metrics.h"
#include "train/experiment.h"

namespace sdp {

/// One line: the assembled model's accuracy and loss, what they are without corrections, the single
/// subnetworks' accuracies, and how much of the test set that is where it is not all of it. Of a language
/// model: loss and perplexity.
std::string describe(const EvalRecord& record);

/// A few lines at the start of a run: model, workers, coverage, processes, device.
std::string describe_start(const Experiment& experiment, const std::string& device);

/// Steps, epochs and where they come from.
std::string describe_length(const Experiment& experiment, const RunSteps& steps);

/// What to say where a step waits for its batches for a fifth of its time or more; nothing where it does not.
std::optional<std::string> slow_data_warning(double step_ms, double wait_ms, const DataSpec& data);

}  // namespace sdp
