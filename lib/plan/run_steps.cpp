#include "plan/run_steps.h"

#include <algorithm>
#include <cmath>

namespace sdp {
namespace {

double budget_factor(const Experiment& experiment) {
  switch (experiment.spec.train.budget) {
    case Budget::kEpochs:
      return 1;
    case Budget::kFlops:
      return 1 / flops_share(experiment.plan);
    case Budget::kCoverage:
      return 1 / experiment.plan.coverage();
  }
  return 1;
}

}  // namespace

RunSteps run_steps(const Experiment& experiment, int64_t dataset_size) {
  const ExperimentSpec& spec = experiment.spec;
  RunSteps steps;
  steps.samples_per_step = spec.train.batch_size_per_worker * spec.train.accumulate_steps *
                           spec.subnetwork.workers * spec.subnetwork.replicas;
  steps.steps_per_epoch = static_cast<double>(dataset_size) / static_cast<double>(steps.samples_per_step);
  steps.epochs = spec.train.epochs * budget_factor(experiment);
  const auto in_steps = [&](double epochs) {
    return std::max<int64_t>(1, std::llround(epochs * steps.steps_per_epoch));
  };
  steps.length.total_steps = spec.train.max_steps.value_or(in_steps(steps.epochs));
  if (spec.train.max_steps) steps.epochs = static_cast<double>(*spec.train.max_steps) / steps.steps_per_epoch;
  if (spec.schedule.warmup_steps) {
    steps.length.warmup_steps = *spec.schedule.warmup_steps;
  } else if (spec.schedule.warmup_epochs > 0) {
    steps.length.warmup_steps = in_steps(spec.schedule.warmup_epochs);
  }
  steps.eval_every_steps = spec.eval.every_steps ? static_cast<double>(*spec.eval.every_steps)
                                                 : spec.eval.every_epochs * steps.steps_per_epoch;
  steps.checkpoint_every_steps = spec.checkpoint.every_steps
                                     ? static_cast<double>(*spec.checkpoint.every_steps)
                                     : spec.checkpoint.every_epochs * steps.steps_per_epoch;
  return steps;
}

bool is_due(double every_steps, int64_t done) {
  if (every_steps <= 0) return false;
  const auto multiples = [&](int64_t steps) { return std::floor(static_cast<double>(steps) / every_steps); };
  return multiples(done) > multiples(done - 1);
}

bool evaluation_is_due(const RunSteps& steps, int64_t done) {
  return done == steps.length.total_steps || is_due(steps.eval_every_steps, done);
}

}  // namespace sdp
