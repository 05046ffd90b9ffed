#pragma once

#include <memory>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "experiment/spec/experiment_spec.h"
#include "telemetry/progress.h"

namespace sdp {

/// The data sets of a run, opened by all its processes.
struct RunData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  double open_s = 0;  ///< time to open both data sets
};

/// Collective: for ImageNet, rank 0 opens them first. Throws the errors of open_dataset().
RunData open_run_data(const ExperimentSpec& spec, Communicator& comm, ProgressLine& line);

/// Opens one split in a single process.
std::unique_ptr<Dataset> open_split(const ExperimentSpec& spec, Split split, ProgressLine& line);

}  // namespace sdp
