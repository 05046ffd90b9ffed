#pragma once

// Which keys may change when a run is resumed.

#include <string>
#include <vector>

#include "experiment/experiment_spec.h"
#include "experiment/load.h"

namespace sdp {

/// A key whose value differs from the saved one.
struct SpecChange {
  std::string key;
  std::string saved;
  std::string now;
  OnResume on_resume = OnResume::kFree;

  std::string text() const { return key + " (was " + saved + ", now " + now + ")"; }
};

/// A default that follows from other keys is null in both.
std::vector<SpecChange> changes_between(ExperimentSpec saved, ExperimentSpec now);

/// Whether the network is divided in the same way, so that a resumed run keeps its owner sets.
bool is_same_division(const SubnetworkSpec& a, SubnetworkSpec b);

/// Returns warnings for changed keys that affect the rest of the run (subnetworks, samples per step,
/// precision, learning rate, schedule, length), and for another global batch with the same learning rate.
/// Keys that only say where and how the run continues may change without a warning. Throws UsageError that
/// names every changed key on which the saved state depends: seed, model, data set and the kind of optimizer.
std::vector<std::string> check_resumable(const ExperimentSpec& saved, const ExperimentSpec& now);

/// The length of a resumed run: the saved one if `now` does not set it. Throws UsageError if a file, rather
/// than an override, makes the run shorter: it is probably not the file that the run was started with.
void keep_length(const ExperimentSpec& saved, ExperimentSpec& now, LengthFrom from);

}  // namespace sdp
