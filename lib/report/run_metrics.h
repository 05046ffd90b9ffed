#pragma once

#include <filesystem>

#include "report/event_file.h"
#include "report/metrics.h"
#include "report/run_folder.h"

namespace sdp {

/// What TensorBoard shows of a record: train/KEY of a training line; eval/KEY of an evaluation, and the mean
/// of its subnetworks as eval/subnetwork_accuracy. What is null or left out in the line is left out.
std::vector<Scalar> scalars_of(const TrainRecord& record);
std::vector<Scalar> scalars_of(const EvalRecord& record);

/// Where the records of a run go: metrics.jsonl, and TensorBoard's event file beside it with the same
/// numbers.
class RunMetrics {
 public:
  /// Appends to metrics.jsonl and begins an event file. `steps_done`: of earlier parts of the run; what their
  /// event files say of later steps is not shown. Throws DataError.
  RunMetrics(const RunFolder& folder, int64_t steps_done)
      : lines_(folder.metrics()), events_(folder.dir, steps_done + 1) {}

  template <class Record>
  void append(const Record& record) {
    lines_.append(record);
    events_.append(record.step, scalars_of(record));
  }

 private:
  JsonLines lines_;
  EventFile events_;
};

}  // namespace sdp
