#include "plan/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sdp {

double learning_rate(const ScheduleSpec& schedule, double peak_lr, const RunLength& length, int64_t step) {
  const double done = static_cast<double>(step) + length.shift;
  const double total = static_cast<double>(length.total_steps) + length.shift;
  const double warmup = length.warmup_steps;
  if (done < warmup) return peak_lr * std::min(done + 1, warmup) / warmup;
  const double t = std::min(1.0, (done - warmup) / std::max(1.0, total - warmup));
  const double f = schedule.final_lr_factor;
  switch (schedule.name) {
    case ScheduleName::kConstant:
      return peak_lr;
    case ScheduleName::kCosine:
      return peak_lr * (f + (1 - f) * (1 + std::cos(std::numbers::pi * t)) / 2);
    case ScheduleName::kLinear:
      return peak_lr * (1 - (1 - f) * t);
    case ScheduleName::kStep: {
      const auto passed = std::count_if(schedule.milestones.begin(), schedule.milestones.end(),
                                        [&](double milestone) { return milestone <= done / total; });
      return peak_lr * std::pow(schedule.gamma, static_cast<double>(passed));
    }
  }
  return peak_lr;
}

}  // namespace sdp
