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

TEST_CASE("workers that own no unit, and groups without a unit in common, are named") {
  struct Case {
    int workers;
    Owners owners;
    std::vector<std::string> named;
  };
  const std::vector<Case> cases = {{4, {{0, 1}, {1, 2}, {2, 3}}, {}},
                                   {3, {{0, 1, 2}}, {}},
                                   {1, {{0}, {0}}, {}},
                                   {8, {{0, 1, 2}, {1, 2, 3}, {4, 6, 7}, {5, 6, 7}}, {"(0-3 | 4-7)"}},
                                   {6, {{1, 3}, {0, 5}, {2, 4}}, {"(0,5 | 1,3 | 2,4)"}},
                                   {4, {{0, 1}, {1, 3}}, {"worker 2 "}},
                                   {9, {{1, 2}, {4, 5}}, {"0,3,6-8", "(1-2 | 4-5)"}},
                                   {2, {{0}, {1}}, {"1/2"}}};  // one owner for every unit
  for (const auto& [workers, owners, named] : cases) {
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
