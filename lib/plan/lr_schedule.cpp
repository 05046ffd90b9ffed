#include "plan/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sdp {

double learning_rate(const ScheduleSpec& schedule, double peak_lr, const RunLength& length, int64_t step) {
  if (step < length.warmup_steps)
    return peak_lr * static_cast<double>(step + 1) / static_cast<double>(length.warmup_steps);
  const double decay_steps =
      static_cast<double>(std::max<int64_t>(1, length.total_steps - length.warmup_steps));
  const double t = std::min(1.0, static_cast<double>(step - length.warmup_steps) / decay_steps);
  const double f = schedule.final_lr_factor;
  switch (schedule.name) {
    case ScheduleName::kConstant:
      return peak_lr;
    case ScheduleName::kCosine:
      return peak_lr * (f + (1 - f) * (1 + std::cos(std::numbers::pi * t)) / 2);
    case ScheduleName::kLinear:
      return peak_lr * (1 - (1 - f) * t);
    case ScheduleName::kStep: {
      const double progress = static_cast<double>(step) / static_cast<double>(length.total_steps);
      const auto passed = std::count_if(schedule.milestones.begin(), schedule.milestones.end(),
                                        [&](double milestone) { return milestone <= progress; });
      return peak_lr * std::pow(schedule.gamma, static_cast<double>(passed));
    }
  }
  return peak_lr;
}

}  // namespace sdp
