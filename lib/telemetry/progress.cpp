#include "telemetry/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "text/units.h"

namespace sdp {
namespace {

std::string two_decimals(double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

/// Four decimals: losses of a long run change in their fourth digit.
std::string loss_text(double loss) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), std::abs(loss) < 1000 ? "%.4f" : "%.4g", loss);
  return text.data();
}

std::string three_digits(double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string labelled(std::string label, const std::string& value) {
  return label += value;
}

/// All fields except the bar and the percentage.
std::vector<ProgressField> fields_of(const ProgressState& state) {
  std::vector<ProgressField> fields;
  std::string epoch = labelled("epoch ", two_decimals(state.epoch));
  if (state.total_epochs > 0) epoch.append("/").append(format_count(state.total_epochs));
  fields.push_back({7, epoch});
  if (state.tokens > 0) fields.push_back({1, format_count(static_cast<double>(state.tokens)) + " tokens"});
  if (state.loss) fields.push_back({9, labelled("loss ", loss_text(*state.loss))});
  if (state.lr) fields.push_back({3, labelled("lr ", three_digits(*state.lr))});
  if (state.gradient_norm) fields.push_back({2, labelled("norm ", three_digits(*state.gradient_norm))});
  if (state.tokens_per_s > 0) {
    fields.push_back({6, format_count(state.tokens_per_s) + " tokens/s"});
  } else if (state.samples_per_s > 0) {
    fields.push_back({6, format_count(state.samples_per_s) + " samples/s"});
  }
  if (state.utilization) fields.push_back({4, format_percent(*state.utilization) + " of peak FLOP/s"});
  if (state.seconds_left) fields.push_back({8, labelled("ETA ", format_duration(*state.seconds_left))});
  if (state.process_memory_bytes > 0)
    fields.push_back({5, labelled("process memory ", format_bytes(state.process_memory_bytes))});
  if (state.tensor_memory_bytes > 0)
    fields.push_back({0, labelled("tensor memory ", format_bytes(state.tensor_memory_bytes))});
  return fields;
}

double share_done(const ProgressState& state) {
  return share_of(state.step, state.total_steps);
}

}  // namespace

std::string format_progress(const ProgressState& state, int columns) {
  return fit_progress(share_done(state), fields_of(state), columns);
}

std::string format_progress_line(const ProgressState& state) {
  const std::string step = "step " + std::to_string(state.step) + "/" + std::to_string(state.total_steps);
  return joined(step + " " + progress_percent(share_done(state)), fields_of(state));
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

}  // namespace sdp
