#include "run/run_data.h"

#include <fmt/format.h>

#include <exception>

#include "comm/communicator.h"
#include "experiment/experiment_spec.h"
#include "process/stopwatch.h"
#include "run/progress.h"

namespace sdp {
namespace {

void check_same_data(Communicator& comm, const std::string& what, const DataIdentity& identity) {
  check_same_everywhere(comm, what, fmt::format("{} samples, hash {}", identity.samples, identity.hash));
}

}  // namespace

std::unique_ptr<Dataset> open_split(const ExperimentSpec& spec, Split split, ProgressLine& line) {
  ProgressTask task(line, split == Split::kTrain ? "reading the training data" : "reading the test data");
  return open_dataset(spec.data, spec.model, split, task.on_progress());
}

RunData open_run_data(const ExperimentSpec& spec, Communicator& comm, ProgressLine& line) {
  const Stopwatch stopwatch;
  // If a list of images is saved, rank 0 goes first, so that the others find it.
  const bool has_list = spec.data.kind() == DataKind::kStreamedImages;
  if (has_list && comm.rank() > 0) comm.patient_barrier();
  RunData data;
  std::exception_ptr error;
  try {
    data = {.train = open_split(spec, Split::kTrain, line), .test = open_split(spec, Split::kTest, line)};
  } catch (...) {
    error = std::current_exception();
  }
  // The other ranks meet the same error themselves.
  if (has_list && comm.rank() == 0) comm.patient_barrier();
  if (error) std::rethrow_exception(error);
  comm.patient_barrier();
  data.open_s = stopwatch.seconds();
  data.train_identity = data.train->identity();
  data.test_identity = data.test->identity();
  check_same_data(comm, "The training data", data.train_identity);
  check_same_data(comm, "The test data", data.test_identity);
  return data;
}

}  // namespace sdp
