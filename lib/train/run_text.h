#pragma once

// What a run and its plan look like in words.

#include <string>

#include "report/metrics.h"
#include "train/experiment.h"

namespace sdp {

/// One line: the assembled model's accuracy, what it is without corrections, and the single subnetworks'.
std::string describe(const EvalRecord& record);

/// A few lines at the start of a run: model, workers, coverage, processes, device.
std::string describe_start(const Experiment& experiment, const std::string& device);

/// Steps, epochs and where they come from.
std::string describe_length(const Experiment& experiment, const RunSteps& steps);

}  // namespace sdp
