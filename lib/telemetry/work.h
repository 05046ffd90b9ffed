#pragma once

// Progress of work other than training steps, such as an evaluation or the writing of a file.

#include <cstdint>
#include <string>

#include "io/on_progress.h"
#include "telemetry/progress_line.h"

namespace sdp {

struct WorkState {
  std::string name;       ///< "evaluating the full model"
  std::string unit = {};  ///< unit of the parts, "batches"; empty: only the percentage is shown
  int64_t done = 0;
  int64_t total = 0;
  double elapsed_s = 0;
};

/// One line of at most `columns` characters: bar, percentage, name, parts done, time left at the average
/// pace. If the line is too long, fields are dropped in this order: bar, parts done, time left, name.
std::string format_work(const WorkState& state, int columns);

/// The same as a line of a log: "NAME: 36/80 batches  45% ETA 12.3 s".
std::string format_work_line(const WorkState& state);

/// Shows the progress of a piece of work. Short work is not shown: a terminal shows the line after 2 s and
/// erases it at the end; otherwise a line is printed after 10 s and then every 10 s.
class Work {
 public:
  using Clock = ProgressLine::Clock;

  /// Starts the work. The line must outlive it.
  Work(ProgressLine& line, std::string name, std::string unit = "", Clock::time_point now = Clock::now());
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void update(int64_t done, int64_t total, Clock::time_point now = Clock::now());
  /// Calls update(). This object must outlive the returned function.
  OnProgress on_progress();

 private:
  ProgressLine& line_;
  WorkState state_;
  Clock::time_point began_;
  Clock::time_point next_draw_;
  bool is_drawn_ = false;
};

}  // namespace sdp
