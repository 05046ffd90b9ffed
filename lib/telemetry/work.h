#pragma once

// What is shown of a piece of work other than training steps: an evaluation, a file that is written.

#include <cstdint>
#include <string>

#include "io/on_progress.h"
#include "telemetry/progress_line.h"

namespace sdp {

struct WorkState {
  std::string name;       ///< "evaluating the full model"
  std::string unit = {};  ///< of the parts, "batches"; empty: only their share is shown
  int64_t done = 0;
  int64_t total = 0;
  double elapsed_s = 0;
};

/// One line of at most `columns` characters: bar, percent, name, parts done, time left by the pace so far.
/// Where there is too little room, the bar goes first, then parts done, time left, name.
std::string format_work(const WorkState& state, int columns);

/// The same as a line of a log: "NAME: 36/80 batches  45% ETA 12.3 s".
std::string format_work_line(const WorkState& state);

/// Shows a piece of work while it goes on. Work that is over soon is not shown: on a terminal its line is
/// first drawn after 2 s, and removed at the end; elsewhere a line is printed after 10 s and every 10 s.
class Work {
 public:
  using Clock = ProgressLine::Clock;

  /// The work begins. The line must outlive it.
  Work(ProgressLine& line, std::string name, std::string unit = "", Clock::time_point now = Clock::now());
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void update(int64_t done, int64_t total, Clock::time_point now = Clock::now());
  /// Calls update(). This must outlive it.
  OnProgress on_progress();

 private:
  ProgressLine& line_;
  WorkState state_;
  Clock::time_point began_;
  Clock::time_point next_draw_;
  bool is_drawn_ = false;
};

}  // namespace sdp
