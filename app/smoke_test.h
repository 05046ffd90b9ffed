#pragma once

// --smoke: whether an experiment runs from its first step to its summary, within a minute or so.

#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// The experiment with two steps, an evaluation on a few samples, and a run folder of this user among the
/// temporary files (TMPDIR).
ExperimentSpec smoke_test_of(ExperimentSpec spec);

/// Removes the run folder of a smoke test, at the beginning (it may be left of one that was killed) and at
/// the end.
class SmokeTestFolder {
 public:
  explicit SmokeTestFolder(const ExperimentSpec& spec);
  ~SmokeTestFolder();
  SmokeTestFolder(const SmokeTestFolder&) = delete;
  SmokeTestFolder& operator=(const SmokeTestFolder&) = delete;

 private:
  std::filesystem::path dir_;
};

}  // namespace sdp
