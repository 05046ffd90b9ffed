#include "experiment/run_steps.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace sdp {
namespace {

/// Whether the steps after the first `before` of `done` have reached a multiple of the interval.
bool is_due(const StepInterval& every, int64_t done, int64_t before) {
  if (every.steps <= 0) return false;
  const auto multiples = [&](int64_t steps) {
    return std::floor((static_cast<double>(steps) + every.shift) / every.steps);
  };
  return multiples(done) > multiples(before);
}

}  // namespace

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

double budget_factor(const TrainSpec& train, const SubnetPlan& plan) {
  switch (train.budget) {
    case Budget::kEpochs:
      return 1;
    case Budget::kFlops:
      return 1 / flops_share(plan);
    case Budget::kCoverage:
      return 1 / plan.coverage();
  }
  return 1;
}

double warmup_steps(const ExperimentSpec& spec, const StepOrigin& origin, int64_t dataset_size) {
  if (origin.warmup > 0) return origin.warmup;
  if (spec.schedule.warmup_steps) return static_cast<double>(*spec.schedule.warmup_steps);
  const double samples = spec.schedule.warmup_epochs * static_cast<double>(dataset_size);
  return samples > 0 ? std::max(1.0, std::round(samples / static_cast<double>(samples_per_step(spec)))) : 0;
}

RunSteps run_steps(const Experiment& experiment, int64_t dataset_size, const StepOrigin& origin) {
  const ExperimentSpec& spec = experiment.spec;
  RunSteps steps;
  steps.dataset_size = dataset_size;
  steps.origin = origin;
  steps.samples_per_step = samples_per_step(spec);
  steps.steps_per_epoch = static_cast<double>(dataset_size) / static_cast<double>(steps.samples_per_step);
  const double factor = budget_factor(spec.train, experiment.plan);
  steps.epochs = spec.train.epochs * factor;
  const auto origin_step = static_cast<double>(origin.step);
  if (spec.train.max_steps) {
    steps.length.total_steps = *spec.train.max_steps;
  } else {
    steps.length.shift = origin.epochs * factor * steps.steps_per_epoch - origin_step;
    steps.length.total_steps =
        std::max<int64_t>(1, std::llround(steps.epochs * steps.steps_per_epoch - steps.length.shift));
  }
  if (spec.train.max_steps || origin.step > 0) steps.epochs = steps.epochs_after(steps.length.total_steps);
  steps.length.warmup_steps = warmup_steps(spec, origin, dataset_size);
  // How many more steps of the present size the samples before the origin would have taken.
  const double shift =
      static_cast<double>(origin.samples) / static_cast<double>(steps.samples_per_step) - origin_step;
  const auto interval = [&](const std::optional<int64_t>& every_steps, double every_epochs) {
    return every_steps ? StepInterval{.steps = static_cast<double>(*every_steps)}
                       : StepInterval{.steps = every_epochs * steps.steps_per_epoch, .shift = shift};
  };
  steps.eval_every = interval(spec.eval.every_steps, spec.eval.every_epochs);
  steps.checkpoint_every = interval(spec.checkpoint.every_steps, spec.checkpoint.every_epochs);
  return steps;
}

bool is_due(const StepInterval& every, int64_t done) {
  return is_due(every, done, done - 1);
}

bool is_due_by_time(const CheckpointSpec& spec, double seconds) {
  return spec.every_minutes > 0 && seconds >= 60 * spec.every_minutes;
}

StepDecision decide(const ExperimentSpec& spec, const RunSteps& steps, int64_t done) {
  const auto every = [&](int64_t interval) { return StepInterval{.steps = static_cast<double>(interval)}; };
  const bool is_last = done == steps.length.total_steps;
  const bool is_local = spec.exchange.is_local();
  const bool exchanges = is_local && (is_last || spec.exchange.last_before(done) == done);
  const int64_t last_exchange = is_local ? spec.exchange.last_before(done - 1) : done - 1;
  const auto is_due_after_exchange = [&](const StepInterval& interval) {
    return (exchanges || !is_local) && is_due(interval, done, last_exchange);
  };
  const bool saves = is_last || is_due(steps.checkpoint_every, done);
  return {.logs = saves || is_due(every(spec.train.log_every_steps), done),
          .saves = saves,
          .audits = is_due_after_exchange(every(spec.train.audit_every.value_or(0))),
          .evaluates = is_last || is_due_after_exchange(steps.eval_every),
          .exchanges = exchanges};
}

}  // namespace sdp
