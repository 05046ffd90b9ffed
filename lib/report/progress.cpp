#include "report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

namespace sdp {
namespace {

constexpr std::chrono::milliseconds kDrawInterval{100};
constexpr int kDefaultColumns = 80;
constexpr int kLongestBar = 30;
constexpr int kShortestBar = 5;
constexpr std::string_view kEraseLine = "\r\x1b[K";

/// A piece of the line; of two that do not both fit, the one with the smaller rank goes.
struct Field {
  int rank;
  std::string text;
};

double share_done(const ProgressState& state) {
  if (state.total_steps <= 0) return 0;
  return std::clamp(static_cast<double>(state.step) / static_cast<double>(state.total_steps), 0.0, 1.0);
}

std::string fixed(double value, int decimals) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string percent(const ProgressState& state) {
  // Rounded down: 100% means done.
  const std::string number = fixed(std::floor(100 * share_done(state)), 0);
  return std::string(3 - std::min<size_t>(3, number.size()), ' ') + number + "%";
}

/// Losses of a long run change in their fourth digit.
std::string loss_text(double loss) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), std::abs(loss) < 1000 ? "%.4f" : "%.4g", loss);
  return text.data();
}

std::string labelled(std::string label, const std::string& value) {
  return label += value;
}

/// Everything but the bar and the percentage.
std::vector<Field> fields_of(const ProgressState& state) {
  std::vector<Field> fields;
  std::string epoch = labelled("epoch ", fixed(state.epoch, 2));
  if (state.total_epochs > 0) epoch.append("/").append(format_count(state.total_epochs));
  fields.push_back({2, epoch});
  if (state.loss) fields.push_back({4, labelled("loss ", loss_text(*state.loss))});
  if (state.samples_per_s > 0) fields.push_back({1, format_count(state.samples_per_s) + " samples/s"});
  if (state.seconds_left) fields.push_back({3, labelled("ETA ", format_duration(*state.seconds_left))});
  if (state.memory_bytes > 0) fields.push_back({0, format_bytes(state.memory_bytes)});
  return fields;
}

std::string joined(std::string text, const std::vector<Field>& fields) {
  for (const Field& field : fields)
    text += " " + field.text;
  return text;
}

/// A bar of `room` characters with its brackets and a space behind it.
std::string bar(double share, int room) {
  const auto cells = static_cast<size_t>(room - 3);
  const auto full = static_cast<size_t>(share * static_cast<double>(cells));
  std::string text = "[";
  text.append(full, '#').append(cells - full, '-');
  return text += "] ";
}

int columns_of(int descriptor) {
  winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

}  // namespace

std::string format_progress(const ProgressState& state, int columns) {
  const auto width = static_cast<size_t>(std::max(columns, 0));
  std::vector<Field> fields = fields_of(state);
  std::string text = joined(percent(state), fields);
  while (text.size() > width && !fields.empty()) {
    fields.erase(std::min_element(fields.begin(), fields.end(),
                                  [](const Field& a, const Field& b) { return a.rank < b.rank; }));
    text = joined(percent(state), fields);
  }
  if (text.size() > width) return text.substr(0, width);
  const int room = std::min(static_cast<int>(width - text.size()), kLongestBar + 3);
  return room < kShortestBar + 3 ? text : bar(share_done(state), room) + text;
}

std::string format_progress_line(const ProgressState& state) {
  const std::string step = "step " + std::to_string(state.step) + "/" + std::to_string(state.total_steps);
  return joined(step + " " + percent(state), fields_of(state));
}

Progress::Progress(int descriptor, int64_t log_every_steps)
    : descriptor_(descriptor), log_every_steps_(log_every_steps), is_terminal_(isatty(descriptor) == 1) {}

void Progress::update(ProgressState state, Clock::time_point now) {
  const bool is_first = !state_;
  if (is_first) {
    first_step_ = state.step;
    first_time_ = now;
  }
  const int64_t steps = state.step - first_step_;
  if (steps > 0) {
    const double seconds_per_step =
        std::chrono::duration<double>(now - first_time_).count() / static_cast<double>(steps);
    state.seconds_left =
        seconds_per_step * static_cast<double>(std::max<int64_t>(state.total_steps - state.step, 0));
  }
  state_ = state;
  is_shown_ = false;
  const bool is_due =
      is_terminal_ ? is_first || now - last_draw_ >= kDrawInterval : state.step % log_every_steps_ == 0;
  if (!is_due) return;
  last_draw_ = now;
  draw();
}

void Progress::clear() {
  if (!line_is_open_) return;
  print(std::string(kEraseLine));
  line_is_open_ = false;
}

void Progress::finish() {
  if (state_ && !is_shown_) draw();
  if (line_is_open_) print("\n");
  line_is_open_ = false;
}

void Progress::draw() {
  is_shown_ = true;
  if (!is_terminal_) return print(format_progress_line(*state_) + "\n");
  // The last column stays free: a full line makes some terminals start the next.
  print(std::string(kEraseLine) += format_progress(*state_, columns_of(descriptor_) - 1));
  line_is_open_ = true;
}

void Progress::print(const std::string& text) const {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace sdp
