#pragma once

// What may change between the parts of one run.

#include <string>
#include <vector>

#include "spec/experiment_spec.h"

namespace sdp {

/// Warnings for changed keys that change the rest of the run (learning rate, schedule, length). Keys that
/// only say where and how it runs change silently. Throws UsageError naming every changed key that the saved
/// state depends on: seed, model, data set, subnetworks, batch sizes, precision, and the optimizer's kind.
std::vector<std::string> check_resumable(const ExperimentSpec& saved, const ExperimentSpec& now);

}  // namespace sdp
