// Figures of a plan as in plan.json, and the table of workers.

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"
#include "cost/figures.h"
#include "cost/make_experiment.h"
#include "cost/plan_text.h"
#include "experiment/run_steps.h"
#include "subnet/small_plans.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

Experiment experiment_on(int64_t processes) {
  ExperimentSpec spec;
  spec.model = test::mlp_spec();
  spec.train.batch_size_per_worker = spec.eval.batch_size.emplace(8);
  SubnetPlan plan = test::plan_of(4, 2, 1);
  ExchangePlan exchanges =
      make_exchange_plan(plan, make_slot_map(4, 1, processes), exchange_options(spec, plan.layout));
  NodeMap nodes = place_on_nodes(exchanges, NodePlacement::kInOrder, processes / 2);
  return {spec, std::move(plan), std::move(exchanges), std::move(nodes)};
}

TEST_CASE("figures that a forecast adds") {
  const Experiment experiment = experiment_on(4);
  Json with = Json::parse(to_json(figures_of(experiment, device_profile("h100", Precision::kFp32))));
  const Json& peak = with["per_worker"][1]["peak_bytes"];
  int64_t sum = 0;
  for (const char* kind : {"weights", "gradients", "optimizer", "activations", "buckets"})
    sum += peak[kind].get<int64_t>();
  CHECK(peak["total"] == sum);
  CHECK(with["forecast"]["methods"][0]["name"] == "this plan");
  // Without the forecast everything else is the same.
  with.erase("forecast");
  for (Json& process : with["per_process"])
    for (const char* key : {"peak_bytes", "evaluation_peak_bytes"})
      process.erase(key);
  Json without = Json::parse(to_json(figures_of(experiment)));
  without["per_worker"] = with["per_worker"];
  CHECK(with == without);
}

ProcessFigures cost(int units, int64_t bytes) {
  ProcessFigures figures;
  figures.units.resize(units);
  figures.parameters = 1000;
  figures.flops_per_sample = 2000;
  figures.parameter_bytes = figures.gradient_bytes = figures.optimizer_bytes = figures.activation_bytes =
      figures.gather_bytes_per_step = bytes;
  figures.peak_bytes = MemoryByKind{.weights = 2 * bytes, .buckets = 3 * bytes};
  return figures;
}

/// Lines below the header, with single spaces between words.
std::vector<std::string> rows_of(const std::string& table) {
  std::istringstream lines(table);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string row;
    for (std::string word; words >> word;)
      row += (row.empty() ? "" : " ") + word;
    rows.push_back(row);
  }
  REQUIRE(rows.size() >= 2);
  return {rows.begin() + 2, rows.end()};
}

TEST_CASE("equal workers share one row; unequal ones are summarized over all of them") {
  ProcessFigures dense = cost(5, 300);
  dense.peak_bytes.reset();
  using Rows = std::vector<std::string>;
  const std::string small = " 1.00 k 2.00 k 100 B 100 B 100 B 100 B 100 B 500 B";
  const std::string large = " 1.00 k 2.00 k 400 B 400 B 400 B 400 B 400 B 1.95 KiB";
  CHECK(rows_of(cost_table("worker", std::vector<ProcessFigures>(64, cost(2, 100)), &dense)) ==
        Rows{"0-63 2" + small, "DDP 5 1.00 k 2.00 k 300 B 300 B 300 B 300 B 300 B"});
  std::vector<ProcessFigures> costs(5, cost(2, 100));
  costs[1] = cost(3, 400);
  CHECK(rows_of(cost_table("process", costs, nullptr)) ==
        Rows{"0 2-4 2" + small, "1 3" + large, "smallest 2" + small,
             "mean 2.2 1.00 k 2.00 k 160 B 160 B 160 B 160 B 160 B 800 B", "largest 3" + large});
}

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

// Its learning rates: test/run/test_resharding.cpp.
TEST_CASE("a run whose steps changed goes on with the next sample, by its share of the run") {
  // 1000 samples, 3 epochs. Half of them are consumed by 150 steps of 10, the rest takes 38 (37.5) of 40.
  ExperimentSpec spec = spec_of("1");
  const StepOrigin origin{.step = 150, .samples = 1500, .epochs = 1.5};
  const RunSteps steps = steps_of(spec, origin);
  CHECK(steps.length.total_steps == 188);
  CHECK(steps.samples_after(151) == 1540);
  CHECK(steps.epochs_after(160) == Approx(1.9));
  CHECK(steps.epochs == Approx(3.02));
  CHECK(steps_of(spec, {.step = 10, .samples = 100, .epochs = 0.1}).length.total_steps == 10 + 73);  // 72.5
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
