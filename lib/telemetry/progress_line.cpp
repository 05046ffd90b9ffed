#include "telemetry/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace sdp {
namespace {

constexpr int kLongestBar = 30;
constexpr int kShortestBar = 5;
constexpr std::string_view kEraseLine = "\r\x1b[K";

/// A bar of `room` characters, including its brackets and a trailing space.
std::string bar(double share, int room) {
  const auto cells = static_cast<size_t>(room - 3);
  const auto full = static_cast<size_t>(share * static_cast<double>(cells));
  std::string text = "[";
  text.append(full, '#').append(cells - full, '-');
  return text += "] ";
}

/// Width of the terminal; 0 if unknown or not a terminal.
int columns_of(int descriptor) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

double share_of(int64_t done, int64_t total) {
  if (total <= 0) return 0;
  return std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
}

std::string progress_percent(double share) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "%3.0f%%", std::floor(100 * share));
  return text.data();
}

std::string joined(std::string text, const std::vector<ProgressField>& fields) {
  for (const ProgressField& field : fields)
    text += " " + field.text;
  return text;
}

std::string fit_progress(double share, std::vector<ProgressField> fields, int columns) {
  const auto width = static_cast<size_t>(std::max(columns, 0));
  std::string text = joined(progress_percent(share), fields);
  while (text.size() > width && !fields.empty()) {
    fields.erase(
        std::min_element(fields.begin(), fields.end(),
                         [](const ProgressField& a, const ProgressField& b) { return a.rank < b.rank; }));
    text = joined(progress_percent(share), fields);
  }
  if (text.size() > width) return text.substr(0, width);
  const int room = std::min(static_cast<int>(width - text.size()), kLongestBar + 3);
  return room < kShortestBar + 3 ? text : bar(share, room) + text;
}

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

}  // namespace sdp
