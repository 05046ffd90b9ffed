#include "train/run_data.h"

#include <fmt/format.h>

#include <exception>

#include "telemetry/stopwatch.h"
#include "telemetry/work.h"

namespace sdp {
namespace {

/// Rank 0 goes first if it saves the list of images, so that the other ranks find it.
std::unique_ptr<Dataset> open_in_turn(const ExperimentSpec& spec, Split split, Communicator& comm,
                                      ProgressLine& line) {
  const auto open = [&] { return open_split(spec, split, line); };
  if (spec.data.kind() != DataKind::kStreamedImages) return open();
  if (comm.rank() > 0) {
    comm.barrier();
    return open();
  }
  std::unique_ptr<Dataset> dataset;
  std::exception_ptr error;
  try {
    dataset = open();
  } catch (...) {
    error = std::current_exception();  // the other ranks meet the same error themselves
  }
  comm.barrier();
  if (error) std::rethrow_exception(error);
  return dataset;
}

}  // namespace

std::unique_ptr<Dataset> open_split(const ExperimentSpec& spec, Split split, ProgressLine& line) {
  Work work(line, split == Split::kTrain ? "reading the training data" : "reading the test data");
  return open_dataset(spec.data, spec.model, split, work.on_progress());
}

RunData open_run_data(const ExperimentSpec& spec, Communicator& comm, ProgressLine& line) {
  const Stopwatch stopwatch;
  RunData data{.train = open_in_turn(spec, Split::kTrain, comm, line),
               .test = open_in_turn(spec, Split::kTest, comm, line)};
  data.open_s = stopwatch.seconds();
  return data;
}

}  // namespace sdp
