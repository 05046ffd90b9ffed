#pragma once

// What is shown of a run while it goes on.

#include <cstdint>
#include <optional>
#include <string>

#include "telemetry/progress_line.h"

namespace sdp {

struct ProgressState {
  int64_t step = 0;
  int64_t total_steps = 0;
  double epoch = 0;
  double total_epochs = 0;
  std::optional<double> loss = {};  ///< of the last logging interval
  double samples_per_s = 0;         ///< 0: unknown, not shown
  std::optional<double> seconds_left = {};
  int64_t process_memory_bytes = 0;  ///< 0: unknown, not shown
  int64_t tensor_memory_bytes = 0;   ///< likewise
};

/// One line of at most `columns` characters (ASCII): bar, percent, epoch, loss, samples/s, time left, process
/// memory, tensor memory. Where there is too little room, the bar goes first, then tensor memory, process
/// memory, samples/s, epoch, time left, loss.
std::string format_progress(const ProgressState& state, int columns);

/// The same as a line of a log: everything that is known, without a bar.
std::string format_progress_line(const ProgressState& state);

/// Shows the progress of training: on a terminal a single line redrawn in place at most 10 times a second,
/// elsewhere a line at the logging interval and one at the end.
class Progress {
 public:
  using Clock = ProgressLine::Clock;

  /// The line must outlive it.
  Progress(ProgressLine& line, int64_t log_every_steps) : line_(line), log_every_steps_(log_every_steps) {}

  /// After each step. Fills in `seconds_left` from the pace since the first call.
  void update(ProgressState state, Clock::time_point now = Clock::now());
  /// Shows the last state, if it was not shown, and ends the line.
  void finish();

 private:
  void draw();

  ProgressLine& line_;
  int64_t log_every_steps_;
  std::optional<ProgressState> state_;
  bool is_shown_ = false;  // state_ was drawn
  int64_t first_step_ = 0;
  Clock::time_point first_time_;
  Clock::time_point last_draw_;
};

}  // namespace sdp
