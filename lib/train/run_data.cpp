#include "train/run_data.h"

#include <exception>

#include "telemetry/stopwatch.h"

namespace sdp {

std::unique_ptr<Dataset> open_split(const ExperimentSpec& spec, Split split, ProgressLine& line) {
  Work work(line, split == Split::kTrain ? "reading the training data" : "reading the test data");
  return open_dataset(spec.data, spec.model, split, work.on_progress());
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
  return data;
}

}  // namespace sdp
