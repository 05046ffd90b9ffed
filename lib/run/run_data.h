#pragma once

// The data sets of a run.

#include <memory>

#include "data/dataset.h"

namespace sdp {

class Communicator;
class ProgressLine;
struct ExperimentSpec;

struct RunData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  DataIdentity train_identity = {};
  DataIdentity test_identity = {};
  double open_s = 0;  ///< time to open both data sets
};

/// Opens the data sets in all processes of the run, and compares them between the processes. Collective: for
/// ImageNet, rank 0 opens them first. Throws the errors of open_dataset(), and UsageError if they differ.
RunData open_run_data(const ExperimentSpec& spec, Communicator& comm, ProgressLine& line);

/// Opens one split in a single process.
std::unique_ptr<Dataset> open_split(const ExperimentSpec& spec, Split split, ProgressLine& line);

}  // namespace sdp
