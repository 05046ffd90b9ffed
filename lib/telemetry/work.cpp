#include "telemetry/work.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "text/units.h"

namespace sdp {
namespace {

constexpr std::chrono::seconds kDrawnAfter{2};
constexpr std::chrono::seconds kPrintInterval{10};

std::vector<ProgressField> parts_and_time(const WorkState& state) {
  std::vector<ProgressField> fields;
  if (!state.unit.empty())
    fields.push_back({0, std::to_string(state.done) + "/" + std::to_string(state.total) + " " + state.unit});
  if (state.done > 0) {
    const auto left = static_cast<double>(std::max<int64_t>(state.total - state.done, 0));
    fields.push_back({1, "ETA " + format_duration(state.elapsed_s / static_cast<double>(state.done) * left)});
  }
  return fields;
}

}  // namespace

std::string format_work(const WorkState& state, int columns) {
  std::vector<ProgressField> fields = parts_and_time(state);
  fields.insert(fields.begin(), {2, state.name});
  return fit_progress(share_of(state.done, state.total), std::move(fields), columns);
}

std::string format_work_line(const WorkState& state) {
  std::vector<ProgressField> fields = parts_and_time(state);
  const ProgressField percent = {2, progress_percent(share_of(state.done, state.total))};
  fields.insert(state.unit.empty() ? fields.begin() : fields.begin() + 1, percent);
  return joined(state.name + ":", fields);
}

Work::Work(ProgressLine& line, std::string name, std::string unit, Clock::time_point now)
    : line_(line),
      state_{.name = std::move(name), .unit = std::move(unit)},
      began_(now),
      next_draw_(now + (line.is_terminal() ? Clock::duration(kDrawnAfter) : kPrintInterval)) {}

Work::~Work() {
  if (is_drawn_) line_.clear();
}

void Work::update(int64_t done, int64_t total, Clock::time_point now) {
  if (now < next_draw_) return;
  state_.done = done;
  state_.total = total;
  state_.elapsed_s = std::chrono::duration<double>(now - began_).count();
  if (line_.is_terminal()) {
    line_.draw(format_work(state_, line_.columns()));
    is_drawn_ = true;
    next_draw_ = now + ProgressLine::kDrawInterval;
  } else {
    line_.print(format_work_line(state_));
    next_draw_ = now + kPrintInterval;
  }
}

OnProgress Work::on_progress() {
  return [this](int64_t done, int64_t total) { update(done, total); };
}

}  // namespace sdp
