#pragma once

// The line in which a program shows its progress: that of training, and that of other work such as an
// evaluation or the writing of a file.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "io/on_progress.h"

namespace sdp {

/// The last line that a program has written to a file descriptor. On a terminal it is redrawn in place. Write
/// errors are ignored.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;
  /// Minimum interval between redraws on a terminal.
  static constexpr std::chrono::milliseconds kDrawInterval{100};

  /// Descriptor -1 shows nothing.
  explicit ProgressLine(int descriptor);
  /// Calls end(), so that an error message begins on a line of its own.
  ~ProgressLine() { end(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether the line is drawn on a terminal. False for a terminal without columns, such as the one that
  /// mpirun gives to processes whose output it forwards.
  bool is_terminal() const { return is_terminal_; }
  /// Maximum line length on the terminal, in characters.
  int columns() const;
  /// On a terminal: replaces the drawn line.
  void draw(const std::string& text);
  /// Erases the drawn line, so that something else can be printed.
  void clear();
  /// Leaves the drawn line in place and moves to the next line.
  void end();
  /// Not on a terminal: prints a line of its own.
  void print(const std::string& text) const;
  /// Warns on standard error of a damaged image that is left out.
  void print_skipped(const std::string& message);

 private:
  void write(const std::string& text) const;

  int descriptor_;
  bool is_terminal_;
  bool is_drawn_ = false;  // the cursor is behind the drawn text
};

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

struct TaskState {
  std::string name;       ///< "evaluating the full model"
  std::string unit = {};  ///< unit of the parts, "batches"; empty: only the percentage is shown
  int64_t done = 0;
  int64_t total = 0;
  double elapsed_s = 0;
};

/// One line of at most `columns` characters: bar, percentage, name, parts done, time left at the average
/// pace. If the line is too long, fields are dropped in this order: bar, parts done, time left, name.
std::string format_task(const TaskState& state, int columns);

/// The same as a line of a log: "NAME: 36/80 batches  45% ETA 12.3 s".
std::string format_task_line(const TaskState& state);

/// Shows the progress of a piece of work. Short work is not shown: a terminal shows the line after 2 s and
/// erases it at the end; otherwise a line is printed after 10 s and then every 10 s.
class ProgressTask {
 public:
  using Clock = ProgressLine::Clock;

  /// Starts the work. The line must outlive it.
  ProgressTask(ProgressLine& line, std::string name, std::string unit = "",
               Clock::time_point now = Clock::now());
  ~ProgressTask();
  ProgressTask(const ProgressTask&) = delete;
  ProgressTask& operator=(const ProgressTask&) = delete;

  void update(int64_t done, int64_t total, Clock::time_point now = Clock::now());
  /// Calls update(). This object must outlive the returned function.
  OnProgress on_progress();

 private:
  ProgressLine& line_;
  TaskState state_;
  Clock::time_point began_;
  Clock::time_point next_draw_;
  bool is_drawn_ = false;
};

}  // namespace sdp
