#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "catch.h"
#include "cost/accounting.h"
#include "cost/layouts.h"
#include "model/model_spec.h"
#include "small_plans.h"
#include "spec/error.h"
#include "spec/json_fields.h"
#include "subnet/assignment_starts.h"
#include "subnet/nodes.h"
#include "subnet/plan.h"
#include "subnet/random_bits.h"
#include "subnet/spectral.h"
#include "temp_folder.h"

namespace sdp {
namespace {

using Catch::Matchers::Contains;

ModelSpec resnet(int64_t width) {
  ModelSpec spec{.kind = ResNetSpec{.width = width}};
  resolve_model(spec);
  return spec;
}

SubnetworkSpec subnetwork(int64_t workers, const std::string& coverage, Assignment assignment,
                          Construction construction = Construction::kBlock) {
  SubnetworkSpec spec;
  spec.workers = workers;
  spec.coverage.text = coverage;
  spec.construction = construction;
  spec.assignment = assignment;
  return spec;
}

/// Largest minus smallest number of units per worker.
int spread_of_units(const SubnetPlan& plan) {
  std::vector<int> count(plan.workers, 0);
  for (const Unit& unit : plan.units)
    for (int worker : unit.owners)
      ++count[worker];
  const auto [smallest, largest] = std::minmax_element(count.begin(), count.end());
  return *largest - *smallest;
}

TEST_CASE("equal_units: numbers of units per worker differ by at most one; branches of a block count once") {
  const ModelLayout blocks = layout_of(resnet(16));
  for (const auto& [n, coverage, spread] : {std::tuple{8, "3/8", 0}, {5, "2/5", 1}, {4, "3/4", 0}})
    CHECK(spread_of_units(make_plan(blocks, subnetwork(n, coverage, Assignment::kEqualUnits), 0)) == spread);
  ModelSpec llama{.kind = LlamaSpec{.depth = 6}};
  resolve_model(llama);
  const ModelLayout transformer = layout_of(llama, /*sequence_length=*/16);
  SubnetworkSpec spec = subnetwork(4, "1/4", Assignment::kEqualUnits);
  CHECK(spread_of_units(make_plan(transformer, spec, 0)) == 2);
  spec.unit = UnitKind::kBranch;
  CHECK(spread_of_units(make_plan(transformer, spec, 0)) == 0);
  spec = subnetwork(8, "4/8", Assignment::kEqualUnits, Construction::kNeuron);
  spec.unit = UnitKind::kBranch;
  CHECK(spread_of_units(make_plan(structure_of(model_named("swin_t")), spec, 0)) <= 1);  // 3 to 24 heads
}

TEST_CASE("rules: the first that matches a branch sets its owners and its masking") {
  constexpr Masking kBackward = Masking::kBackward;
  struct Case {
    std::vector<SubnetworkRule> rules;
    std::vector<size_t> owners;  ///< by branch: layer1.0, layer1.1, layer2.0, ..
    std::string masking;         ///< f or b by branch
  };
  const std::vector<Case> cases = {
      {{}, {2, 2, 2, 2, 2, 2, 2, 2}, "ffffffff"},
      {{{"strided", Coverage{"1"}, {}}}, {2, 2, 4, 2, 4, 2, 4, 2}, "ffffffff"},
      {{{"layer1.*", {}, kBackward}, {"*.0", Coverage{"1/4"}, {}}}, {2, 2, 1, 2, 1, 2, 1, 2}, "bbffffff"},
      {{{"layer[34].1", Coverage{"3/4"}, kBackward}, {"strided", {}, kBackward}, {"*", Coverage{"0.25"}, {}}},
       {1, 1, 2, 1, 2, 3, 2, 3},
       "ffbfbbbb"}};
  for (const auto& [rules, owners, masking] : cases)
    for (const Construction construction : {Construction::kBlock, Construction::kNeuron}) {
      SubnetworkSpec spec = subnetwork(4, "2/4", Assignment::kRandom, construction);
      spec.rules = rules;
      const SubnetPlan plan = make_plan(structure_of(resnet(16)), spec, 0);
      for (const Unit& unit : plan.units)
        CHECK(unit.owners.size() == owners[unit.branch]);
      for (size_t b = 0; b < masking.size(); ++b)
        CHECK(name_of(plan.masking[b]).front() == masking[b]);
    }
}

TEST_CASE("rules without a branch, rules that split a block, and slices without owners are refused") {
  const auto plan_with = [](const char* model, UnitKind unit, std::vector<SubnetworkRule> rules) {
    SubnetworkSpec spec = subnetwork(4, "2/4", Assignment::kRandom);
    spec.unit = unit;
    spec.rules = std::move(rules);
    return make_plan(structure_of(model_named(model)), spec, 0);
  };
  const SubnetworkRule attention{"*.self_attn", Coverage{"1"}, {}};
  for (const auto& [model, rules, key] :
       {std::tuple{"resnet18", std::vector<SubnetworkRule>{{"layer5.*"}}, "subnetwork.rules[0]"},
        {"resnet18", {{"layer1.*"}, {"layer1.0"}}, "subnetwork.rules[1]"},
        {"llama_134m", {{"strided"}}, "subnetwork.rules[0]"},
        {"llama_134m", {attention}, "subnetwork.rules"}})
    CHECK_THAT(message_of<UsageError>([&] { plan_with(model, UnitKind::kBlock, rules); }), Contains(key));
  CHECK_NOTHROW(plan_with("llama_134m", UnitKind::kBranch, {attention}));
  SubnetworkSpec narrow = subnetwork(4, "1", Assignment::kBalanced, Construction::kNeuron);
  narrow.capacities = {{"1/2"}, {"1/5"}, {"1/5"}, {"1/5"}};
  narrow.slices_per_branch = 2;  // 1/5 of them is none
  CHECK_THAT(message_of<UsageError>([&] { make_plan(structure_of(resnet(16)), narrow, 0); }),
             Contains("subnetwork.capacities"));
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
      SubnetworkSpec spec = subnetwork(4, "1/4", Assignment::kWindow, construction);
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

TEST_CASE("a plan of 1,024 workers") {
  ModelSpec model = model_named("llama_134m");
  model.kind.as<LlamaSpec>().depth = 1;
  SubnetworkSpec spec = subnetwork(1024, "1/2", Assignment::kBalanced, Construction::kNeuron);
  spec.masking = Masking::kBackward;
  const SubnetPlan plan = make_plan(structure_of(model), spec, 0);
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
  const auto plan_with = [](const ModelLayout& layout, int64_t workers, int64_t replicas,
                            Construction construction) {
    SubnetworkSpec spec = subnetwork(workers, "1/2", Assignment::kWindow, construction);
    spec.replicas = replicas;
    return make_plan(layout, spec, 0);
  };
  CHECK_NOTHROW(plan_with(structure_of(resnet(16)), 8, 2048, Construction::kBlock));
  const ModelLayout layout = structure_of(model_named("llama_1b"));
  for (const auto& [workers, replicas] : {std::pair{1024, 2}, {256, 64}, {512, 16}})
    CHECK_THROWS_AS(plan_with(layout, workers, replicas, Construction::kNeuron), UsageError);
}

TEST_CASE("an unsuitable assignment file is refused, naming the fault") {
  const ModelLayout layout = structure_of(resnet(16));
  const SubnetPlan random = make_plan(layout, subnetwork(4, "2/4", Assignment::kRandom), 11);
  const std::string published = json_of(identity_of(random)).dump();
  const TempFolder folder;
  struct Case {
    int64_t workers;
    const char* coverage;
    std::string text, fault;
  };
  for (const auto& [workers, coverage, text, fault] :
       {Case{4, "3/4", published, "expected 3 different workers"}, Case{2, "1", published, " 0..1"},
        Case{4, "2/4", "not json", "is not a plan.json"},
        Case{4, "2/4", R"({"units": []})", "layer1.0[0:16]"},
        Case{4, "2/4", R"({"units": [{"branch": "layer1.0"}]})", "units[0] lacks `begin`"},
        Case{4, "2/4", R"({"units": [{"branch": "layer1.0", "begin": 0, "end": 16, "owners": [1, 1]}]})",
             "[1, 1]"}}) {
    SubnetworkSpec spec = subnetwork(workers, coverage, Assignment::kFile);
    spec.assignment_file = folder.write("plan.json", text);
    CHECK_THAT(message_of<UsageError>([&] { make_plan(layout, spec, 0); }), Contains(fault));
  }
}

/// One unit for each owner set.
SubnetPlan plan_with(int workers, const Owners& owners) {
  SubnetPlan plan =
      test::plan_of(workers, static_cast<int64_t>(owners.front().size()), /*seed=*/0, Construction::kBlock,
                    Masking::kForward, static_cast<int64_t>(owners.size()));
  for (size_t u = 0; u < owners.size(); ++u)
    plan.units.at(u).owners = owners[u];
  return plan;
}

std::vector<std::string> warnings_of(int workers, const Owners& owners) {
  return plan_warnings(plan_with(workers, owners));
}

TEST_CASE("workers that own no unit, and groups without a unit in common, are named") {
  struct Case {
    int workers;
    Owners owners;
    std::vector<std::string> named;
  };
  for (const auto& [workers, owners, named] :
       {Case{4, {{0, 1}, {1, 2}, {2, 3}}, {}}, Case{3, {{0, 1, 2}}, {}}, Case{1, {{0}, {0}}, {}},
        Case{8, {{0, 1, 2}, {1, 2, 3}, {4, 6, 7}, {5, 6, 7}}, {"(0-3 | 4-7)"}},
        Case{6, {{1, 3}, {0, 5}, {2, 4}}, {"(0,5 | 1,3 | 2,4)"}}, Case{4, {{0, 1}, {1, 3}}, {"worker 2 "}},
        Case{9, {{1, 2}, {4, 5}}, {"0,3,6-8", "(1-2 | 4-5)"}}, Case{2, {{0}, {1}}, {"1/2"}}}) {
    const std::vector<std::string> warnings = warnings_of(workers, owners);
    REQUIRE(warnings.size() == named.size());
    for (size_t i = 0; i < named.size(); ++i)
      CHECK_THAT(warnings[i], Contains(named[i]));
  }
  Owners many;
  for (int worker = 0; worker < 200; worker += 4)
    many.push_back({worker, worker + 2});
  for (const std::string& warning : warnings_of(200, many))
    CHECK(warning.size() < 300);
}

TEST_CASE("plan warnings: workers are unconnected if the normalized second eigenvalue is 1") {
  RandomBits random(17);
  int unconnected = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int n = 2 + random.below(7);
    const int p = 1 + random.below(n);
    Owners owners(1 + random.below(8));
    std::vector<bool> owns(n, false);
    for (std::vector<int>& set : owners) {
      set = random_owners(n, p, random);
      for (int worker : set)
        owns[worker] = true;
    }
    const bool is_idle = std::count(owns.begin(), owns.end(), false) > 0;
    const Spectrum spectrum = spectrum_of(owners, std::vector<double>(owners.size(), 1), n);
    const bool is_unconnected = spectrum.lambda2_normalized > 1 - 1e-6;
    unconnected += is_unconnected ? 1 : 0;
    CHECK(warnings_of(n, owners).size() == size_t{is_idle} + size_t{is_unconnected});
  }
  CHECK(unconnected > 30);
  CHECK(unconnected < 270);
}

}  // namespace
}  // namespace sdp
