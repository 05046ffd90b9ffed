#pragma once

// The line in which a program shows its progress.

#include <chrono>
#include <string>
#include <vector>

namespace sdp {

/// A field of the line. If not all fields fit, those with the smallest rank are dropped first.
struct ProgressField {
  int rank;
  std::string text;
};

/// At most `columns` characters: a bar, the percentage and the fields in their order. The bar takes the
/// remaining room; if there is too little, the bar is dropped first, then fields.
std::string fit_progress(double share, std::vector<ProgressField> fields, int columns);

/// " 45%", rounded down: 100% means done.
std::string progress_percent(double share);

/// `text`, then the fields, each preceded by a space.
std::string joined(std::string text, const std::vector<ProgressField>& fields);

/// done / total in 0..1; 0 if the total is 0.
double share_of(int64_t done, int64_t total);

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

}  // namespace sdp
