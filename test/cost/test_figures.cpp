// Figures of a plan as in plan.json, and the table of workers.

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"
#include "cost/figures.h"
#include "cost/make_experiment.h"
#include "cost/plan_text.h"
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

TEST_CASE("figures of workers, and of processes that run several") {
  const PlanFigures figures = figures_of(experiment_on(2));
  CHECK(figures.per_worker.size() == 4);
  CHECK(figures.per_process.size() == 2);
  CHECK(figures.per_process.back().node == 1);
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

TEST_CASE("equal workers share one row, and there is nothing to summarize") {
  ProcessFigures dense = cost(5, 300);
  dense.peak_bytes.reset();
  CHECK(rows_of(cost_table("worker", std::vector<ProcessFigures>(64, cost(2, 100)), &dense)) ==
        std::vector<std::string>{"0-63 2 1.00 k 2.00 k 100 B 100 B 100 B 100 B 100 B 500 B",
                                 "DDP 5 1.00 k 2.00 k 300 B 300 B 300 B 300 B 300 B"});
}

TEST_CASE("unequal workers are summarized over all of them") {
  const std::vector<ProcessFigures> costs = {cost(2, 100), cost(3, 400), cost(2, 100), cost(2, 100),
                                             cost(2, 100)};
  CHECK(rows_of(cost_table("process", costs, nullptr)) ==
        std::vector<std::string>{"0 2-4 2 1.00 k 2.00 k 100 B 100 B 100 B 100 B 100 B 500 B",
                                 "1 3 1.00 k 2.00 k 400 B 400 B 400 B 400 B 400 B 1.95 KiB",
                                 "smallest 2 1.00 k 2.00 k 100 B 100 B 100 B 100 B 100 B 500 B",
                                 "mean 2.2 1.00 k 2.00 k 160 B 160 B 160 B 160 B 160 B 800 B",
                                 "largest 3 1.00 k 2.00 k 400 B 400 B 400 B 400 B 400 B 1.95 KiB"});
}

}  // namespace
}  // namespace sdp
