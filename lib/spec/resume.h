#pragma once

// What may change between the parts of one run.

#include <string>
#include <vector>

#include "spec/experiment_spec.h"

namespace sdp {

/// A key whose value is another than the saved one.
struct SpecChange {
  /// What it means for a run that goes on: nothing, as it only says where and how it runs or what is
  /// evaluated and saved; the rest of the run follows the new value; or the saved state does not fit it.
  enum class Effect { kNone, kRestOfRun, kRefused };

  std::string key;
  std::string saved;
  std::string now;
  Effect effect = Effect::kNone;

  std::string text() const { return key + " (was " + saved + ", now " + now + ")"; }
};

std::vector<SpecChange> changes_between(const ExperimentSpec& saved, const ExperimentSpec& now);

/// Warnings for changed keys that change the rest of the run (learning rate, schedule, length). Keys that
/// only say where and how it runs change silently. Throws UsageError naming every changed key that the saved
/// state depends on: seed, model, data set, subnetworks, batch sizes, precision, and the optimizer's kind.
std::vector<std::string> check_resumable(const ExperimentSpec& saved, const ExperimentSpec& now);

}  // namespace sdp
