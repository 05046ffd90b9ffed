// Figures of a plan as in plan.json.

#include "cost/figures.h"
#include "cost/make_experiment.h"

#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
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

}  // namespace
}  // namespace sdp
