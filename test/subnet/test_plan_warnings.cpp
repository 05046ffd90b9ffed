#include <algorithm>

#include "catch.h"
#include "small_plans.h"
#include "subnet/assignment_starts.h"
#include "subnet/plan.h"
#include "subnet/random_bits.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

using Catch::Matchers::Contains;

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

TEST_CASE("plan warnings: groups of workers without a unit in common are named") {
  CHECK(warnings_of(4, {{0, 1}, {1, 2}, {2, 3}}).empty());
  CHECK(warnings_of(3, {{0, 1, 2}}).empty());
  CHECK(warnings_of(1, {{0}, {0}}).empty());

  const auto halves = warnings_of(8, {{0, 1, 2}, {1, 2, 3}, {4, 6, 7}, {5, 6, 7}});
  REQUIRE(halves.size() == 1);
  CHECK_THAT(halves[0], Contains("(0-3 | 4-7)"));
  const auto pairs = warnings_of(6, {{1, 3}, {0, 5}, {2, 4}});
  REQUIRE(pairs.size() == 1);
  CHECK_THAT(pairs[0], Contains("(0,5 | 1,3 | 2,4)"));
}

TEST_CASE("plan warnings: workers without a unit are named, and form no group") {
  const auto one = warnings_of(4, {{0, 1}, {1, 3}});
  REQUIRE(one.size() == 1);
  CHECK_THAT(one[0], Contains("worker 2 owns no unit"));
  const auto both = warnings_of(9, {{1, 2}, {4, 5}});
  REQUIRE(both.size() == 2);
  CHECK_THAT(both[0], Contains("workers 0,3,6-8 own no unit"));
  CHECK_THAT(both[1], Contains("(1-2 | 4-5)"));
}

TEST_CASE("plan warnings: with one owner for every unit, one sentence for any number of workers") {
  for (int workers : {2, 8, 64}) {
    SubnetworkSpec spec;
    spec.workers = workers;
    spec.coverage.text = "1/" + std::to_string(workers);
    spec.assignment = Assignment::kWindow;
    const auto warnings = plan_warnings(make_plan(test::mlp(/*depth=*/workers), spec, 0));
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0],
               Contains("every unit has one owner (coverage 1/" + std::to_string(workers) + ")"));
  }
}

TEST_CASE("plan warnings: long lists are truncated") {
  Owners owners;
  for (int worker = 0; worker < 200; worker += 4)
    owners.push_back({worker, worker + 2});
  const auto warnings = warnings_of(200, owners);
  REQUIRE(warnings.size() == 2);
  for (const std::string& warning : warnings)
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
