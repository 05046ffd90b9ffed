#include <cmath>

#include "catch.h"
#include "experiment/experiment.h"
#include "plan/run_steps.h"

namespace sdp {
namespace {

ExperimentSpec spec_of(const std::string& coverage) {
  ExperimentSpec spec;
  spec.model.kind = MlpSpec{.width = 8, .image_size = 32};
  resolve_model(spec.model);
  spec.subnetwork.workers = 4;
  spec.subnetwork.coverage.text = coverage;
  spec.train.batch_size_per_worker = 10;
  spec.train.epochs = 3;
  return spec;
}

TEST_CASE("an epoch covers the data set once over all workers, replicas and micro-batches") {
  ExperimentSpec spec = spec_of("1");
  CHECK(run_steps(make_experiment(spec, 4), 1000).length.total_steps == 75);
  spec.subnetwork.replicas = 2;
  spec.train.accumulate_steps = 5;
  const RunSteps steps = run_steps(make_experiment(spec, 4), 1000);
  CHECK(steps.samples_per_step == 400);
  CHECK(steps.length.total_steps == 8);  // 7.5
  CHECK(run_steps(make_experiment(spec, 4), 7).length.total_steps == 1);
}

TEST_CASE("the budget lengthens the run, but neither max_steps nor the warm-up") {
  ExperimentSpec spec = spec_of("1/4");
  spec.schedule.warmup_epochs = 1;
  spec.train.budget = Budget::kCoverage;
  CHECK(run_steps(make_experiment(spec, 4), 1000).length.total_steps == 300);
  CHECK(run_steps(make_experiment(spec, 4), 1000).epochs == Approx(12));
  spec.train.budget = Budget::kFlops;
  const Experiment experiment = make_experiment(spec, 4);
  CHECK(run_steps(experiment, 1000).length.total_steps == std::llround(75 / flops_share(experiment.plan)));
  CHECK(run_steps(experiment, 1000).length.warmup_steps == 25);
  spec.train.max_steps = 11;
  CHECK(run_steps(make_experiment(spec, 4), 1000).length.total_steps == 11);
}

TEST_CASE(
    "an action at a given interval of steps happens once per interval, even if epochs are not whole steps") {
  for (const double every : {1.0, 3.0, 10.0, 195.3125, 2.5}) {
    int64_t count = 0;
    for (int64_t done = 1; done <= 1000; ++done) {
      if (!is_due(every, done)) continue;
      ++count;
      CHECK(static_cast<double>(done) >= static_cast<double>(count) * every);
      CHECK(static_cast<double>(done) < static_cast<double>(count) * every + 1);
    }
    CHECK(count == static_cast<int64_t>(1000 / every));
  }
  CHECK(!is_due(0, 5));
}

}  // namespace
}  // namespace sdp
