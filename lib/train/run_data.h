#pragma once

// The data sets of a run, opened by all of its processes.

#include <memory>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "experiment/spec/experiment_spec.h"
#include "telemetry/progress_line.h"

namespace sdp {

struct RunData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  double open_s = 0;  ///< time that opening both took
};

/// Collective: for ImageNet rank 0 opens them first. Throws what open_dataset() throws.
RunData open_run_data(const ExperimentSpec& spec, Communicator& comm, ProgressLine& line);

/// The same of one split in a process of its own.
std::unique_ptr<Dataset> open_split(const ExperimentSpec& spec, Split split, ProgressLine& line);

}  // namespace sdp
