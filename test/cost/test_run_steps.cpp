#include <cmath>

#include "catch.h"
#include "cost/make_experiment.h"
#include "experiment/run_steps.h"

namespace sdp {
namespace {

ExperimentSpec spec_of(const std::string& coverage) {
  ExperimentSpec spec;
  spec.model.kind = MlpSpec{.width = 8, .image_size = 32};
  resolve_model(spec.model);
  spec.subnetwork.workers = 4;
  spec.subnetwork.coverage.text = coverage;
  spec.subnetwork.assignment = Assignment::kWindow;
  spec.train.batch_size_per_worker = 10;
  spec.train.epochs = 3;
  return spec;
}

Experiment experiment_of(const ExperimentSpec& spec) {
  static std::vector<RecordedModel> recorded;
  return make_experiment(spec, 4, std::nullopt, std::nullopt, &recorded);
}

RunSteps steps_of(const ExperimentSpec& spec, const StepOrigin& origin = {}) {
  return run_steps(experiment_of(spec), /*samples=*/1000, origin);
}

TEST_CASE("an epoch covers the data set once over all workers, replicas and micro-batches") {
  ExperimentSpec spec = spec_of("1");
  CHECK(steps_of(spec).length.total_steps == 75);
  spec.subnetwork.replicas = 2;
  spec.train.accumulate_steps = 5;
  const RunSteps steps = steps_of(spec);
  CHECK(steps.samples_per_step == 400);
  CHECK(steps.length.total_steps == 8);  // 7.5
  CHECK(run_steps(experiment_of(spec), 7).length.total_steps == 1);
}

TEST_CASE("the budget lengthens the run, but neither max_steps nor the warm-up") {
  ExperimentSpec spec = spec_of("1/4");
  spec.schedule.warmup_epochs = 1;
  spec.train.budget = Budget::kCoverage;
  CHECK(steps_of(spec).length.total_steps == 300);
  CHECK(steps_of(spec).epochs == Approx(12));
  spec.train.budget = Budget::kFlops;
  CHECK(steps_of(spec).length.total_steps == std::llround(75 / flops_share(experiment_of(spec).plan)));
  CHECK(steps_of(spec).length.warmup_steps == 25);
  spec.train.max_steps = 11;
  CHECK(steps_of(spec).length.total_steps == 11);
}

TEST_CASE("a run whose steps changed goes on with the next sample, by its share of the run") {
  // 1000 samples, 3 epochs. Half of them are consumed by 150 steps of 10, the rest takes 38 (37.5) of 40.
  ExperimentSpec spec = spec_of("1");
  spec.schedule.warmup_epochs = 0.5;
  spec.schedule.final_lr_factor = 0.1;
  const StepOrigin origin{.step = 150, .samples = 1500, .epochs = 1.5};
  const RunSteps steps = steps_of(spec, origin);
  CHECK(steps.length.total_steps == 188);
  CHECK(steps.samples_after(151) == 1540);
  CHECK(steps.epochs_after(160) == Approx(1.9));
  CHECK(steps.epochs == Approx(3.02));
  const auto lr = [&](const RunSteps& of, int64_t step) {
    return learning_rate(spec.schedule, 1, of.length, step);
  };
  // As in a run that had these steps from the beginning.
  const RunSteps whole = steps_of(spec);
  for (int64_t k = 0; k < 37; ++k)
    CHECK(lr(steps, 150 + k) == Approx((lr(whole, 37 + k) + lr(whole, 38 + k)) / 2).margin(0.01));
  CHECK(lr(steps, 188) == Approx(0.1));
  // In the middle of the warm-up.
  const RunSteps early = steps_of(spec, {.step = 10, .samples = 100, .epochs = 0.1});
  CHECK(early.length.total_steps == 10 + 73);  // 72.5
  CHECK(lr(early, 10) == Approx(3.5 / 13));
  // Evaluations stay where whole epochs end.
  int64_t evaluations = 0;
  for (int64_t done = 151; done <= steps.length.total_steps; ++done) {
    const bool passes_an_epoch =
        std::floor(steps.epochs_after(done)) > std::floor(steps.epochs_after(done - 1));
    CHECK(is_due(steps.eval_every, done) == passes_an_epoch);
    evaluations += passes_an_epoch ? 1 : 0;
  }
  CHECK(evaluations == 2);

  // A length in steps stays one, whatever the samples of a step.
  spec.train.max_steps = 300;
  CHECK(steps_of(spec, origin).length.total_steps == 300);
  CHECK(lr(steps_of(spec, origin), 200) == lr(steps_of(spec), 200));
}

TEST_CASE("a run that goes on with another coverage uses up the rest of its budget") {
  // 1.5 of 3 epochs of the budget are used up; the other half is 6 epochs of workers with a quarter each.
  ExperimentSpec spec = spec_of("1/4");
  spec.train.budget = Budget::kCoverage;
  const StepOrigin origin{.step = 37, .samples = 1500, .epochs = 1.5};
  const RunSteps steps = steps_of(spec, origin);
  CHECK(steps.length.total_steps == 37 + 150);
  CHECK(steps.length.shift == Approx(150 - 37));
  CHECK(steps.epochs == Approx(7.5));
}

TEST_CASE(
    "an action at a given interval of steps happens once per interval, even if epochs are not whole steps") {
  for (const double every : {1.0, 3.0, 10.0, 195.3125, 2.5}) {
    int64_t count = 0;
    for (int64_t done = 1; done <= 1000; ++done) {
      if (!is_due({.steps = every}, done)) continue;
      ++count;
      CHECK(static_cast<double>(done) >= static_cast<double>(count) * every);
      CHECK(static_cast<double>(done) < static_cast<double>(count) * every + 1);
    }
    CHECK(count == static_cast<int64_t>(1000 / every));
  }
  CHECK(!is_due({}, 5));
}

TEST_CASE("what follows a step: intervals, the end, and a line of the metrics with every checkpoint") {
  ExperimentSpec spec = spec_of("1");
  spec.train.max_steps = 20;
  spec.train.log_every_steps = 4;
  spec.train.audit_every = 3;
  spec.checkpoint.every_steps = 6;
  spec.eval.every_steps = 5;
  const RunSteps steps = steps_of(spec);
  for (int64_t done = 1; done <= 20; ++done) {
    INFO(done);
    const StepDecision decision = decide(spec, steps, done);
    const bool saves = done % 6 == 0 || done == 20;
    CHECK(decision.saves == saves);
    CHECK(decision.logs == (done % 4 == 0 || saves));
    CHECK(decision.audits == (done % 3 == 0));
    CHECK(decision.evaluates == (done % 5 == 0));
  }
}

TEST_CASE("a checkpoint is due the given number of minutes after the last one") {
  CheckpointSpec spec;
  spec.every_minutes = 1.5;
  CHECK_FALSE(is_due_by_time(spec, 89));
  CHECK(is_due_by_time(spec, 90));
  CHECK(is_due_by_time(spec, 1000));
  spec.every_minutes = 0;
  CHECK_FALSE(is_due_by_time(spec, 3.6e6));
}

}  // namespace
}  // namespace sdp
