// Fast implementations in lib/subnet against plain code, and plans as large as the spec allows.

#include <algorithm>
#include <set>
#include <stdexcept>
#include <vector>

#include "capture/layouts.h"
#include "catch.h"
#include "forecast/accounting.h"
#include "small_plans.h"
#include "spec/error.h"
#include "subnet/assignment_starts.h"
#include "subnet/nodes.h"
#include "subnet/placement.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

TEST_CASE("a member set behaves like a list of its numbers") {
  RandomBits random(1);
  for (const int numbers : {1, 63, 64, 65, 200, 1000}) {
    for (const int count : {0, 1, numbers / 2, numbers}) {
      const std::vector<int> members = random_owners(numbers, count, random);
      const MemberSet set = members;
      CHECK(set.size() == members.size());
      CHECK(std::equal(set.begin(), set.end(), members.begin(), members.end()));
      for (int number = 0; number < numbers + 130; ++number) {
        const auto found = std::find(members.begin(), members.end(), number);
        REQUIRE(set.contains(number) == (found != members.end()));
        REQUIRE(set.place_of(number) == (found == members.end() ? -1 : found - members.begin()));
      }
    }
  }
  CHECK_FALSE(MemberSet(std::vector{0, 1}).contains(-1));
  CHECK_THROWS_AS(MemberSet(std::vector{1, 1}), std::logic_error);
  CHECK_THROWS_AS(MemberSet(std::vector{2, 1}), std::logic_error);
  CHECK_THROWS_AS(MemberSet(std::vector{-1, 1}), std::logic_error);
}

int64_t unevenness(const std::vector<int>& set, int workers) {
  std::vector<int64_t> count(workers, 0);
  for (int a : set)
    for (int b : set)
      if (a != b) ++count[(a - b + workers) % workers];
  int64_t squares = 0;
  for (int64_t of_difference : count)
    squares += of_difference * of_difference;
  return squares;
}

TEST_CASE("no exchange of a single element spreads a base set more evenly") {
  RandomBits random(2);
  for (const auto& [workers, owners] : {std::pair{7, 3}, {8, 4}, {13, 4}, {24, 5}, {31, 15}, {40, 20}}) {
    const std::vector<int> set = spread_base_set(workers, owners, random);
    CHECK(std::set(set.begin(), set.end()).size() == static_cast<size_t>(owners));
    const int64_t found = unevenness(set, workers);
    for (size_t place = 0; place < set.size(); ++place) {
      for (int candidate = 0; candidate < workers; ++candidate) {
        if (std::binary_search(set.begin(), set.end(), candidate)) continue;
        std::vector<int> exchanged = set;
        exchanged[place] = candidate;
        CHECK(unevenness(exchanged, workers) >= found);
      }
    }
  }
  CHECK(unevenness(spread_base_set(7, 3, random), 7) == 6);  // a difference set, {0, 1, 3}
}

TEST_CASE("the lower bound on lambda2 is never above it, and close if there are enough steps") {
  RandomBits random(3);
  for (const int workers : {2, 5, 16, 130, 200}) {
    for (int draw = 0; draw < 3; ++draw) {
      const int units = 4 + random.below(3 * workers);
      Owners owners;
      std::vector<double> weights;
      for (int u = 0; u < units; ++u) {
        owners.push_back(random_owners(workers, std::max(1, workers / 2 - draw), random));
        weights.push_back(1 + random.below(3));
      }
      const std::vector<double> k = co_ownership(owners, weights, workers);
      const double exact = lambda2(k, workers);
      const double below = lambda2_from_below(k, workers);
      CHECK(below <= exact + 1e-12);
      CHECK(below >= 0.9 * exact - 1e-9);
    }
  }
  CHECK(lambda2_from_below(std::vector<double>(9, 0), 3) == 0);
}

SubnetworkSpec spec_of(int64_t workers, int64_t replicas, Construction construction, Masking masking) {
  SubnetworkSpec spec;
  spec.workers = workers;
  spec.replicas = replicas;
  spec.coverage.text = "1/2";
  spec.construction = construction;
  spec.masking = masking;
  return spec;
}

ModelLayout llama(std::string_view name) {
  return layout_of(model_named(name), /*sequence_length=*/1024);
}

TEST_CASE("a plan of 1,024 workers") {
  const SubnetPlan plan =
      make_plan(llama("llama_134m"), spec_of(1024, 1, Construction::kNeuron, Masking::kBackward), 0);
  const Schedule schedule = make_schedule(plan, make_placement(1024, 1, 1024), {});
  int64_t sent = 0;
  int64_t owned = 0;
  for (int worker = 0; worker < 1024; ++worker) {
    const Cost cost = cost_of(plan, schedule, {}, worker);
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
  const NodeTraffic traffic = node_traffic(schedule, place_on_nodes(schedule, NodePlacement::kInOrder, 8));
  CHECK(traffic.inside + traffic.between == sent);
}

TEST_CASE("the slowest steps of a search for 1,024 workers") {
  RandomBits random(4);
  const std::vector<int> base = spread_base_set(1024, 512, random);
  CHECK(base.size() == 512);
  const Owners shifts = cyclic_shifts(base, 1024);
  const std::vector<double> k = co_ownership(shifts, std::vector<double>(shifts.size(), 1), 1024);
  // K is circulant: its eigenvalues sum to n p, and the largest one is p^2.
  const std::vector<double> eigenvalues = symmetric_eigenvalues(k, 1024);
  double sum = 0;
  for (double value : eigenvalues)
    sum += value;
  CHECK(eigenvalues.front() == Approx(512.0 * 512));
  CHECK(sum == Approx(1024.0 * 512));
}

TEST_CASE("co-ownership is the same whether it is counted or summed") {
  RandomBits random(5);
  for (const double unit : {1.0, 0.1}) {  // sums of tenths are not exact
    Owners owners;
    std::vector<double> weights;
    std::vector<double> expected(20 * 20, 0);
    for (int u = 0; u < 150; ++u) {
      owners.push_back(random_owners(20, 1 + random.below(20), random));
      weights.push_back(unit * (1 + random.below(3)));
      for (int k : owners.back())
        for (int l : owners.back())
          expected[static_cast<size_t>(k) * 20 + l] += weights.back();
    }
    CHECK(co_ownership(owners, weights, 20) == expected);
  }
}

TEST_CASE("more units, workers and replicas than the limits are refused") {
  const ModelLayout layout = llama("llama_1b");
  CHECK_NOTHROW(make_plan(test::mlp(4), spec_of(8, 2048, Construction::kBlock, Masking::kForward), 0));
  for (const auto& [workers, replicas] : {std::pair{1024, 2}, {256, 64}, {512, 16}})
    CHECK_THROWS_AS(
        make_plan(layout, spec_of(workers, replicas, Construction::kNeuron, Masking::kForward), 0),
        UsageError);
}

}  // namespace
}  // namespace sdp
