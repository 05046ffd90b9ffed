#pragma once

// The line in which a program shows how far it is.

#include <chrono>
#include <string>
#include <vector>

namespace sdp {

/// A piece of the line; of those that do not all fit, the one with the smallest rank goes.
struct ProgressField {
  int rank;
  std::string text;
};

/// At most `columns` characters: a bar, percent and the fields in their order. The bar takes the room that is
/// left; where there is too little of it, the bar goes first, then fields.
std::string fit_progress(double share, std::vector<ProgressField> fields, int columns);

/// " 45%", rounded down: 100% means done.
std::string progress_percent(double share);

/// `text` and the fields, with a space before each.
std::string joined(std::string text, const std::vector<ProgressField>& fields);

/// done / total in 0..1; 0 where there is nothing to do.
double share_of(int64_t done, int64_t total);

/// The last line of what a program has written to a file descriptor. On a terminal it is drawn again and
/// again in place, by whoever has something to show. Failing writes are ignored: nobody watches.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;
  /// The most often that anybody should draw on a terminal.
  static constexpr std::chrono::milliseconds kDrawInterval{100};

  /// Nothing is shown on descriptor -1.
  explicit ProgressLine(int descriptor);
  /// As end(): what is printed after an error begins on a line of its own.
  ~ProgressLine() { end(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether somebody sees the line being drawn. Not on a terminal without columns, as mpirun makes for the
  /// processes whose output it passes on.
  bool is_terminal() const { return is_terminal_; }
  /// Characters that a line on the terminal should have at most.
  int columns() const;
  /// On a terminal: replaces what is drawn.
  void draw(const std::string& text);
  /// Removes what is drawn, for something else to be printed.
  void clear();
  /// Leaves what is drawn where it is: what comes next is on the next line.
  void end();
  /// Elsewhere: a line of its own.
  void print(const std::string& text) const;

 private:
  void write(const std::string& text) const;

  int descriptor_;
  bool is_terminal_;
  bool is_drawn_ = false;  // the cursor is behind what was drawn
};

}  // namespace sdp
