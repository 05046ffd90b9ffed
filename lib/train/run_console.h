#pragma once

// What rank 0 prints during a run: messages, and a progress line between them.

#include <set>
#include <string>

#include "telemetry/log.h"
#include "telemetry/progress.h"

namespace sdp {

class RunConsole {
 public:
  /// Ranks above 0 show no progress, and their logger prints only warnings.
  RunConsole(Logger log, int rank, int64_t log_every_steps);

  void tell(const std::string& message);
  void warn(const std::string& message);
  /// Warns of a damaged image that was left out, once per image.
  void report_skipped(const std::string& message);

  /// Before the first step.
  void begin_progress(int64_t step) { progress_.begin(step); }
  /// Shows the progress, and records it in the log file.
  void show(const ProgressState& state);
  void finish_progress() { progress_.finish(); }
  /// For the progress of other work, such as an evaluation.
  ProgressLine& line() { return line_; }

 private:
  Logger log_;
  ProgressLine line_;
  Progress progress_;
  std::set<std::string> reported_;
};

}  // namespace sdp
