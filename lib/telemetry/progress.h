#pragma once

// Progress of training, shown while a run is in progress.

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
  // Unset or 0: unknown, not shown.
  std::optional<double> lr = {};
  std::optional<double> gradient_norm = {};
  double samples_per_s = 0;
  double tokens_per_s = 0;  ///< of a language model; shown instead of samples_per_s
  int64_t tokens = 0;       ///< trained on so far
  std::optional<double> utilization = {};
  std::optional<double> seconds_left = {};
  int64_t process_memory_bytes = 0;
  int64_t tensor_memory_bytes = 0;
};

/// One line of at most `columns` characters (ASCII): bar, percentage, epoch, tokens, loss, lr, gradient norm,
/// samples/s or tokens/s, utilization, time left, process memory, tensor memory. If the line is too long,
/// fields are dropped in this order: bar, tensor memory, tokens, gradient norm, lr, utilization, process
/// memory, rate, epoch, time left, loss.
std::string format_progress(const ProgressState& state, int columns);

/// The same as a line of a log: all known fields, without the bar.
std::string format_progress_line(const ProgressState& state);

/// Shows the progress of training. On a terminal, it redraws a single line in place at most 10 times per
/// second; elsewhere, it prints a line after the first step, at every logging interval and at the end.
class Progress {
 public:
  using Clock = ProgressLine::Clock;

  /// The line must outlive it.
  Progress(ProgressLine& line, int64_t log_every_steps) : line_(line), log_every_steps_(log_every_steps) {}

  /// Call before the first step, whose end is then shown in any case.
  void begin(int64_t step, Clock::time_point now = Clock::now());
  /// Call after each step. Sets `seconds_left` from the average pace since begin(), or the first call.
  void update(ProgressState state, Clock::time_point now = Clock::now());
  /// Shows the last state if it was not shown yet, and ends the line.
  void finish();
  /// The state of the last update, with `seconds_left`.
  const std::optional<ProgressState>& state() const { return state_; }

 private:
  void draw();

  ProgressLine& line_;
  int64_t log_every_steps_;
  std::optional<ProgressState> state_;
  bool is_shown_ = false;  // state_ was drawn
  bool has_begun_ = false;
  bool shows_next_ = false;
  int64_t first_step_ = 0;
  Clock::time_point first_time_;
  Clock::time_point last_draw_;
};

}  // namespace sdp
