#pragma once

// What may change between the parts of one run.

#include <string>
#include <vector>

#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// A key whose value is another than the saved one.
struct SpecChange {
  std::string key;
  std::string saved;
  std::string now;
  OnResume on_resume = OnResume::kFree;

  std::string text() const { return key + " (was " + saved + ", now " + now + ")"; }
};

std::vector<SpecChange> changes_between(const ExperimentSpec& saved, const ExperimentSpec& now);

/// Warnings for changed keys that change the rest of the run (learning rate, schedule, length). Keys that
/// only say where and how it runs change silently. Throws UsageError naming every changed key that the saved
/// state depends on: seed, model, data set, subnetworks, batch sizes, precision, and the optimizer's kind.
std::vector<std::string> check_resumable(const ExperimentSpec& saved, const ExperimentSpec& now);

}  // namespace sdp
