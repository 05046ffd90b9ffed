#include "run/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/units.h"

namespace sdp {
namespace {

constexpr int kLongestBar = 30;
constexpr int kShortestBar = 5;
constexpr std::string_view kEraseLine = "\r\x1b[K";

/// A field of the line. If not all fields fit, those with the smallest rank are dropped first.
struct ProgressField {
  int rank;
  std::string text;
};

/// A bar of `room` characters, including its brackets and a trailing space.
std::string bar(double share, int room) {
  const auto cells = static_cast<size_t>(room - 3);
  const auto full = static_cast<size_t>(share * static_cast<double>(cells));
  std::string text = "[";
  text.append(full, '#').append(cells - full, '-');
  return text += "] ";
}

/// done / total in 0..1; 0 if the total is 0.
double share_of(int64_t done, int64_t total) {
  if (total <= 0) return 0;
  return std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
}

/// " 45%", rounded down: 100% means done.
std::string progress_percent(double share) {
  return fmt::format("{:3.0f}%", std::floor(100 * share));
}

/// `text`, then the fields, each preceded by a space.
std::string joined(std::string text, const std::vector<ProgressField>& fields) {
  for (const ProgressField& field : fields)
    text += " " + field.text;
  return text;
}

/// At most `columns` characters: a bar, the percentage and the fields in their order. The bar takes the
/// remaining room; if there is too little, the bar is dropped first, then fields.
std::string fit_progress(double share, std::vector<ProgressField> fields, int columns) {
  const auto width = static_cast<size_t>(std::max(columns, 0));
  std::string text = joined(progress_percent(share), fields);
  while (text.size() > width && !fields.empty()) {
    fields.erase(std::ranges::min_element(fields, {}, &ProgressField::rank));
    text = joined(progress_percent(share), fields);
  }
  if (text.size() > width) return text.substr(0, width);
  const int room = std::min(static_cast<int>(width - text.size()), kLongestBar + 3);
  return room < kShortestBar + 3 ? text : bar(share, room) + text;
}

/// Width of the terminal; 0 if unknown or not a terminal.
int columns_of(int descriptor) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// All fields except the bar and the percentage.
std::vector<ProgressField> fields_of(const ProgressState& state) {
  std::vector<ProgressField> fields;
  std::string epoch = fmt::format("epoch {:.2f}", state.epoch);
  if (state.total_epochs > 0) epoch.append("/").append(format_count(state.total_epochs));
  fields.push_back({7, epoch});
  if (state.tokens > 0) fields.push_back({1, format_count(static_cast<double>(state.tokens)) + " tokens"});
  if (state.loss)  // four decimals: losses of a long run change in their fourth digit
    fields.push_back({9, std::abs(*state.loss) < 1000 ? fmt::format("loss {:.4f}", *state.loss)
                                                      : fmt::format("loss {:.4g}", *state.loss)});
  if (state.lr) fields.push_back({3, fmt::format("lr {:.3g}", *state.lr)});
  if (state.gradient_norm) fields.push_back({2, fmt::format("norm {:.3g}", *state.gradient_norm)});
  if (state.tokens_per_s > 0) {
    fields.push_back({6, format_count(state.tokens_per_s) + " tokens/s"});
  } else if (state.samples_per_s > 0) {
    fields.push_back({6, format_count(state.samples_per_s) + " samples/s"});
  }
  if (state.utilization) fields.push_back({4, format_percent(*state.utilization) + " of peak FLOP/s"});
  if (state.seconds_left) fields.push_back({8, "ETA " + format_duration(*state.seconds_left)});
  if (state.process_memory_bytes > 0)
    fields.push_back({5, "process memory " + format_bytes(state.process_memory_bytes)});
  if (state.tensor_memory_bytes > 0)
    fields.push_back({0, "tensor memory " + format_bytes(state.tensor_memory_bytes)});
  return fields;
}

double share_done(const ProgressState& state) {
  return share_of(state.step, state.total_steps);
}

constexpr std::chrono::seconds kDrawnAfter{2};
constexpr std::chrono::seconds kPrintInterval{10};

std::vector<ProgressField> parts_and_time(const TaskState& state) {
  std::vector<ProgressField> fields;
  if (!state.unit.empty())
    fields.push_back({0, fmt::format("{}/{} {}", state.done, state.total, state.unit)});
  if (state.done > 0) {
    const auto left = static_cast<double>(std::max<int64_t>(state.total - state.done, 0));
    fields.push_back({1, "ETA " + format_duration(state.elapsed_s / static_cast<double>(state.done) * left)});
  }
  return fields;
}

}  // namespace

ProgressLine::ProgressLine(int descriptor)
    : descriptor_(descriptor), is_terminal_(isatty(descriptor) == 1 && columns_of(descriptor) > 0) {}

int ProgressLine::columns() const {
  // The last column stays free: on some terminals a full line starts the next one.
  return columns_of(descriptor_) - 1;
}

void ProgressLine::draw(const std::string& text) {
  write(std::string(kEraseLine) += text);
  is_drawn_ = true;
}

void ProgressLine::clear() {
  if (is_drawn_) write(std::string(kEraseLine));
  is_drawn_ = false;
}

void ProgressLine::end() {
  if (is_drawn_) write("\n");
  is_drawn_ = false;
}

void ProgressLine::print(const std::string& text) const {
  write(text + "\n");
}

void ProgressLine::print_skipped(const std::string& message) {
  clear();
  std::fprintf(stderr, "warning: skipped: %s\n", message.c_str());
}

void ProgressLine::write(const std::string& text) const {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

std::string format_progress(const ProgressState& state, int columns) {
  return fit_progress(share_done(state), fields_of(state), columns);
}

std::string format_progress_line(const ProgressState& state) {
  return joined(
      fmt::format("step {}/{} {}", state.step, state.total_steps, progress_percent(share_done(state))),
      fields_of(state));
}

void Progress::begin(int64_t step, Clock::time_point now) {
  has_begun_ = shows_next_ = true;
  first_step_ = step;
  first_time_ = now;
}

void Progress::update(ProgressState state, Clock::time_point now) {
  const bool is_first = !state_;
  if (!has_begun_) {
    begin(state.step, now);
    shows_next_ = false;
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
  const bool is_due = line_.is_terminal() ? is_first || now - last_draw_ >= ProgressLine::kDrawInterval
                                          : shows_next_ || state.step % log_every_steps_ == 0;
  if (!is_due) return;
  last_draw_ = now;
  shows_next_ = false;
  draw();
}

void Progress::finish() {
  if (state_ && !is_shown_) draw();
  line_.end();
}

void Progress::draw() {
  is_shown_ = true;
  if (line_.is_terminal()) {
    line_.draw(format_progress(*state_, line_.columns()));
  } else {
    line_.print(format_progress_line(*state_));
  }
}

std::string format_task(const TaskState& state, int columns) {
  std::vector<ProgressField> fields = parts_and_time(state);
  fields.insert(fields.begin(), {2, state.name});
  return fit_progress(share_of(state.done, state.total), std::move(fields), columns);
}

std::string format_task_line(const TaskState& state) {
  std::vector<ProgressField> fields = parts_and_time(state);
  const ProgressField percent = {2, progress_percent(share_of(state.done, state.total))};
  fields.insert(state.unit.empty() ? fields.begin() : fields.begin() + 1, percent);
  return joined(state.name + ":", fields);
}

ProgressTask::ProgressTask(ProgressLine& line, std::string name, std::string unit, Clock::time_point now)
    : line_(line),
      state_{.name = std::move(name), .unit = std::move(unit)},
      began_(now),
      next_draw_(now + (line.is_terminal() ? Clock::duration(kDrawnAfter) : kPrintInterval)) {}

ProgressTask::~ProgressTask() {
  if (is_drawn_) line_.clear();
}

void ProgressTask::update(int64_t done, int64_t total, Clock::time_point now) {
  if (now < next_draw_) return;
  state_.done = done;
  state_.total = total;
  state_.elapsed_s = std::chrono::duration<double>(now - began_).count();
  if (line_.is_terminal()) {
    line_.draw(format_task(state_, line_.columns()));
    is_drawn_ = true;
    next_draw_ = now + ProgressLine::kDrawInterval;
  } else {
    line_.print(format_task_line(state_));
    next_draw_ = now + kPrintInterval;
  }
}

OnProgress ProgressTask::on_progress() {
  return [this](int64_t done, int64_t total) { update(done, total); };
}

}  // namespace sdp
