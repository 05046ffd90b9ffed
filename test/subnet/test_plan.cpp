#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "catch.h"
#include "cost/accounting.h"
#include "cost/layouts.h"
#include "spec/error.h"
#include "spec/json_fields.h"
#include "subnet/nodes.h"
#include "subnet/plan.h"

namespace sdp {
namespace {

ModelSpec resnet(int64_t width) {
  ModelSpec spec{.kind = ResNetSpec{.width = width}};
  resolve_model(spec);
  return spec;
}

SubnetworkSpec subnetwork(int64_t workers, const std::string& coverage,
                          Assignment assignment = Assignment::kBalanced) {
  SubnetworkSpec spec;
  spec.workers = workers;
  spec.coverage.text = coverage;
  spec.assignment = assignment;
  return spec;
}

/// Largest minus smallest number of these units per worker.
int spread_of_units(const SubnetPlan& plan, int begin, int end) {
  std::vector<int> count(plan.workers, 0);
  for (int unit = begin; unit < end; ++unit)
    for (int worker : plan.units[unit].owners)
      ++count[worker];
  const auto [smallest, largest] = std::minmax_element(count.begin(), count.end());
  return *largest - *smallest;
}

int spread_of_units(const SubnetPlan& plan) {
  return spread_of_units(plan, 0, static_cast<int>(plan.units.size()));
}

TEST_CASE("equal_units: numbers of units per worker differ by at most one; branches of a block count once") {
  const ModelLayout blocks = layout_of(resnet(16));
  for (const auto& [n, coverage, spread] :
       {std::tuple{8, "3/8", 0}, {8, "6/8", 0}, {5, "2/5", 1}, {4, "3/4", 0}}) {
    const SubnetPlan plan = make_plan(blocks, subnetwork(n, coverage, Assignment::kEqualUnits), 0);
    CHECK(spread_of_units(plan) == spread);
  }
  ModelSpec llama{.kind = LlamaSpec{.depth = 6}};
  resolve_model(llama);
  SubnetworkSpec spec = subnetwork(4, "1/4", Assignment::kEqualUnits);
  CHECK(spread_of_units(make_plan(layout_of(llama, /*sequence_length=*/16), spec, 0)) == 2);
  spec.unit = UnitKind::kBranch;
  CHECK(spread_of_units(make_plan(layout_of(llama, 16), spec, 0)) == 0);
}

TEST_CASE("equal_units in neuron construction: equal in each branch; matches balanced with n slices") {
  SubnetworkSpec spec = subnetwork(8, "4/8", Assignment::kEqualUnits);
  spec.construction = Construction::kNeuron;
  spec.unit = UnitKind::kBranch;
  const ModelLayout layout = layout_of(model_named("swin_t"));  // 3 to 24 heads
  const SubnetPlan plan = make_plan(layout, spec, 0);
  for (int b = 0; b < static_cast<int>(layout.branches.size()); ++b) {
    const int begin = plan.first_unit_of(b);
    const int end = plan.first_unit_of(b + 1);
    CHECK(spread_of_units(plan, begin, end) == ((end - begin) * 4 % 8 == 0 ? 0 : 1));
  }
  CHECK(spread_of_units(plan) <= 1);

  SubnetworkSpec balanced = spec;
  balanced.assignment = Assignment::kBalanced;
  const ModelLayout blocks = layout_of(resnet(64));
  CHECK(plan_hash(make_plan(blocks, spec, 0)) == plan_hash(make_plan(blocks, balanced, 0)));
}

TEST_CASE("in neuron construction every worker computes the layers that are not sliced") {
  const ModelLayout sliced = layout_of(resnet(16));
  ModelLayout layout = sliced;
  const Flops unsliced{.forward = 100, .weight_gradient = 20, .input_gradient = 3};
  for (BranchLayout& branch : layout.branches) {
    branch.flops += unsliced;
    branch.unsliced_flops = unsliced;
  }
  for (const Construction construction : {Construction::kBlock, Construction::kNeuron})
    for (const Masking masking : {Masking::kForward, Masking::kBackward}) {
      SubnetworkSpec spec = subnetwork(4, "1/4", Assignment::kWindow);
      spec.construction = construction;
      spec.masking = masking;
      spec.slices_per_branch = 2;  // so that some workers have none
      const SubnetPlan plan = make_plan(layout, spec, 0);
      SubnetPlan without = plan;
      without.layout = sliced;
      bool some_empty = false;
      for (int worker = 0; worker < 4; ++worker) {
        double more = 0;
        for (int b = 0; b < 8; ++b) {
          const bool owns = plan.owned_width(worker, b) > 0;
          some_empty = some_empty || !owns;
          if (construction == Construction::kBlock)
            more += owns ? 123 : masking == Masking::kBackward ? 103 : 0;
          else
            more += owns || masking == Masking::kBackward ? 123 : 100;
        }
        CHECK(plan.worker_flops(worker) - without.worker_flops(worker) == Approx(more));
      }
      CHECK(some_empty);
      CHECK(plan.dense_flops() - without.dense_flops() == Approx(8 * 123));
    }
}

TEST_CASE("a plan's hash distinguishes plans and depends on nothing else") {
  const ModelLayout layout = layout_of(resnet(16));
  const SubnetPlan plan = make_plan(layout, subnetwork(4, "2/4", Assignment::kRandom), 1);
  CHECK(plan_hash(plan) == plan_hash(make_plan(layout, subnetwork(4, "0.5", Assignment::kRandom), 1)));
  CHECK(plan_hash(plan) != plan_hash(make_plan(layout, subnetwork(4, "2/4", Assignment::kRandom), 2)));
  CHECK(plan_hash(plan) !=
        plan_hash(make_plan(layout_of(resnet(8)), subnetwork(4, "2/4", Assignment::kRandom), 1)));
}

SubnetworkSpec half_of(int64_t workers, int64_t replicas, Construction construction, Masking masking) {
  SubnetworkSpec spec;
  spec.workers = workers;
  spec.replicas = replicas;
  spec.coverage.text = "1/2";
  spec.construction = construction;
  spec.masking = masking;
  return spec;
}

TEST_CASE("a plan of 1,024 workers") {
  const SubnetPlan plan = make_plan(layout_of(model_named("llama_134m"), /*sequence_length=*/1024),
                                    half_of(1024, 1, Construction::kNeuron, Masking::kBackward), 0);
  const ExchangePlan exchanges = make_exchange_plan(plan, make_slot_map(1024, 1, 1024), {});
  int64_t sent = 0;
  int64_t owned = 0;
  for (int worker = 0; worker < 1024; ++worker) {
    const Cost cost = cost_of(plan, exchanges, {}, worker);
    sent += cost.bytes_sent_per_step();
    owned += static_cast<int64_t>(cost.units.size());
  }
  CHECK(owned == static_cast<int64_t>(plan.units.size()) * 512);
  // Gradients of the units of p workers are sent to p - 1, new values to all (docs/design.md, section 2).
  int64_t expected = 0;
  int64_t shared = plan.layout.parameter_count();
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    expected += 4 * plan.unit_parameters(u) * (511 + 1023);
    shared -= plan.unit_parameters(u);
  }
  expected += 4 * shared * (1023 + 1023);
  CHECK(sent == expected);
  const NodeTraffic traffic = node_traffic(exchanges, place_on_nodes(exchanges, NodePlacement::kInOrder, 8));
  CHECK(traffic.inside + traffic.between == sent);
}

TEST_CASE("more units, workers and replicas than the limits are refused") {
  const ModelLayout layout = layout_of(model_named("llama_1b"), /*sequence_length=*/1024);
  CHECK_NOTHROW(
      make_plan(layout_of(resnet(16)), half_of(8, 2048, Construction::kBlock, Masking::kForward), 0));
  for (const auto& [workers, replicas] : {std::pair{1024, 2}, {256, 64}, {512, 16}})
    CHECK_THROWS_AS(
        make_plan(layout, half_of(workers, replicas, Construction::kNeuron, Masking::kForward), 0),
        UsageError);
}

class PlanFile {
 public:
  explicit PlanFile(const std::string& text) { std::ofstream(path_) << text; }
  ~PlanFile() { std::remove(path_.c_str()); }
  SubnetworkSpec spec(int64_t workers, const std::string& coverage) const {
    SubnetworkSpec spec = subnetwork(workers, coverage, Assignment::kFile);
    spec.assignment_file = path_;
    return spec;
  }
  std::string error(int64_t workers, const std::string& coverage) const {
    try {
      make_plan(layout_of(resnet(16)), spec(workers, coverage), 0);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  }

 private:
  std::string path_ = "test_plan_assignment.json";
};

TEST_CASE("an assignment file restores its owners") {
  const ModelLayout layout = layout_of(resnet(16));
  const SubnetPlan published = make_plan(layout, subnetwork(4, "2/4", Assignment::kRandom), 11);
  const PlanFile file(json_of(identity_of(published)).dump());
  CHECK(plan_hash(make_plan(layout, file.spec(4, "2/4"), 0)) == plan_hash(published));
  CHECK_THAT(file.error(4, "3/4"), Catch::Matchers::Contains("expected 3 different workers"));
  CHECK_THAT(file.error(2, "1"), Catch::Matchers::Contains(" 0..1"));
}

TEST_CASE("an unsuitable assignment file is refused, naming the fault") {
  for (const auto& [text, fault] :
       {std::pair{"not json", "is not a plan.json"},
        {R"({"units": []})", "layer1.0[0:16]"},
        {R"({"units": [{"branch": "layer1.0"}]})", "units[0] lacks `begin`"},
        {R"({"units": [{"branch": "layer1.0", "begin": 0, "end": 16, "owners": [1, 1]}]})", "[1, 1]"}})
    CHECK_THAT(PlanFile(text).error(4, "2/4"), Catch::Matchers::Contains(fault));
}

}  // namespace
}  // namespace sdp
