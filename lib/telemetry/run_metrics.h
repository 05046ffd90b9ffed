#pragma once

#include <filesystem>
#include <vector>

#include "telemetry/event_file.h"
#include "telemetry/metrics.h"
#include "telemetry/run_folder.h"

namespace sdp {

/// What TensorBoard shows of a record, as KIND/KEY: the fields that its list calls scalars, of lists their
/// means. What is null or left out in the line is left out.
template <class Record>
std::vector<Scalar> scalars_of(const Record& record);

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
    ++appended_lines_;
    const std::vector<Scalar> scalars = scalars_of(record);
    if (!scalars.empty()) events_.append(record.step, scalars);
  }

  /// Of metrics.jsonl, by this object.
  int64_t appended_lines() const { return appended_lines_; }

 private:
  JsonLines lines_;
  int64_t appended_lines_ = 0;
  EventFile events_;
};

}  // namespace sdp
