#pragma once

#include <vector>

#include "experiment/experiment_spec.h"
#include "io/event_file.h"
#include "run/metrics.h"
#include "run/run_folder.h"

namespace sdp {

/// TensorBoard's scalars of a record, named KIND/KEY: the fields that the record's list marks (kShown); for
/// lists, their means. Values that are null or not in the line are left out.
template <class Record>
std::vector<Scalar> scalars_of(const Record& record);

std::vector<Hyperparameter> hyperparameters_of(const ExperimentSpec& spec);

/// Destination of a run's records: metrics.jsonl, and TensorBoard's event file beside it with the same
/// numbers.
class RunMetrics {
 public:
  /// Appends to metrics.jsonl and begins an event file. `steps_done`: steps of earlier parts of the run;
  /// TensorBoard drops the later steps in their event files. Its table of hyperparameters has the options
  /// that `report` compares. Throws DataError.
  RunMetrics(const RunFolder& folder, int64_t steps_done, const ExperimentSpec& spec)
      : lines_(folder.metrics()), events_(folder.dir, steps_done + 1, hyperparameters_of(spec)) {}

  template <class Record>
  void append(const Record& record) {
    lines_.append(record);
    ++appended_lines_;
    const std::vector<Scalar> scalars = scalars_of(record);
    if (!scalars.empty()) events_.append(record.step, scalars);
  }

  /// Lines that this object appended to metrics.jsonl.
  int64_t appended_lines() const { return appended_lines_; }

 private:
  JsonLines lines_;
  int64_t appended_lines_ = 0;
  EventFile events_;
};

}  // namespace sdp
