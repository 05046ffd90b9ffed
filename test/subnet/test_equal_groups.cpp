// Equal numbers of groups per worker (assignment equal_units).

#include <algorithm>
#include <limits>

#include "assignment_problems.h"
#include "catch.h"
#include "subnet/assignment.h"
#include "subnet/random_bits.h"
#include "subnet/spectral.h"

namespace sdp {

using test::check_owner_sets;
using test::not_worse;
using test::random_problem;
using test::sliced;

namespace {

/// The number of the groups [begin, end) that each worker owns.
std::vector<int> group_counts(const Owners& owners, size_t begin, size_t end, int workers) {
  std::vector<int> count(workers, 0);
  for (size_t group = begin; group < end; ++group)
    for (int worker : owners[group])
      ++count[worker];
  return count;
}

/// Largest minus smallest.
int spread(const std::vector<int>& counts) {
  const auto [smallest, largest] = std::minmax_element(counts.begin(), counts.end());
  return *largest - *smallest;
}

int spread(const Owners& owners, int workers) {
  return spread(group_counts(owners, 0, owners.size(), workers));
}

double smallest(const std::vector<Balance>& balances, double Balance::*figure) {
  double result = std::numeric_limits<double>::max();
  for (const Balance& balance : balances)
    result = std::min(result, balance.*figure);
  return result;
}

}  // namespace

TEST_CASE(
    "equal groups: p owners for each group, numbers per worker that differ by one at most, the same every "
    "time") {
  RandomBits random(31);
  for (int n : {2, 3, 5, 8}) {
    for (int groups : {1, n - 1, n + 1}) {
      const int p = 1 + random.below(n);
      INFO("n " << n << ", p " << p << ", groups " << groups);
      AssignmentProblem problem = random_problem(n, p, groups, random.next());
      problem.bytes_for_mixing = 0;  // in half of the cases
      problem.depth = test::one_stage(problem);
      const Owners owners = assign_balanced(problem);
      check_owner_sets(problem, owners);
      CHECK(spread(owners, n) == (groups * p % n == 0 ? 0 : 1));
      CHECK(assign_balanced(problem) == owners);
    }
  }
}

TEST_CASE("equal groups: the best of all equal assignments, found by exhaustive search") {
  constexpr double kRounding = 1e-9;
  for (const auto& [n, p, groups] :
       {std::tuple{4, 2, 4}, {4, 1, 4}, {4, 3, 4}, {4, 3, 3}, {4, 2, 3}, {3, 1, 4}, {3, 2, 4}, {2, 1, 3}}) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      INFO("n " << n << ", p " << p << ", groups " << groups << ", seed " << seed);
      AssignmentProblem problem = random_problem(n, p, groups, seed);
      problem.depth = test::one_stage(problem);
      problem.bytes_tolerance = 0;
      problem.bytes_for_mixing = 0;
      std::vector<Balance> all;
      test::for_all_assignments(n, p, problem.flops.size(), [&](const Owners& owners) {
        if (spread(owners, problem.workers) <= 1) all.push_back(balance_of(problem, owners));
      });
      const Balance found = balance_of(problem, assign_balanced(problem));
      const double even_flops = 1.05 * smallest(all, &Balance::flops_max_over_mean);
      CHECK(found.flops_max_over_mean <= even_flops + kRounding);
      std::erase_if(all, [&](const Balance& b) { return b.flops_max_over_mean > even_flops + kRounding; });
      const double bytes = smallest(all, &Balance::bytes_max_over_mean);
      CHECK(found.bytes_max_over_mean == Approx(bytes).epsilon(kRounding));
      std::erase_if(all, [&](const Balance& b) { return b.bytes_max_over_mean > bytes + kRounding; });
      CHECK(found.lambda2_by_unit ==
            Approx(smallest(all, &Balance::lambda2_by_unit)).epsilon(kRounding).margin(kRounding));
    }
  }
}

TEST_CASE("equal groups: never worse than an even window, with a multiple of n groups") {
  for (const auto& [n, p] : {std::pair{6, 2}, {8, 3}}) {
    AssignmentProblem problem = random_problem(n, p, 2 * n, 3);
    problem.depth = test::one_stage(problem);
    const Owners window = assign_window(problem);
    REQUIRE(spread(window, n) == 0);
    CHECK(not_worse(balance_of(problem, assign_balanced(problem)), balance_of(problem, window)));
  }
}

TEST_CASE("equal groups of slices: numbers differ by one at most in each family and in all") {
  RandomBits random(41);
  std::vector<int> family;
  for (int n : {2, 3, 5, 8}) {
    for (int slices = 1; slices <= 2 * n + 1; ++slices) {
      const int p = 1 + random.below(n);
      constexpr int kFamilies = 5;
      INFO("n " << n << ", p " << p << ", slices " << slices);
      AssignmentProblem problem = sliced(n, p, kFamilies, slices, family);
      const Owners balanced = assign_balanced_slices(problem, family);
      const Owners owners = assign_balanced_slices(problem, family, /*equal_numbers=*/true);
      check_owner_sets(problem, owners);
      CHECK(spread(owners, n) == (kFamilies * slices * p % n == 0 ? 0 : 1));
      for (size_t begin = 0; begin < owners.size(); begin += slices)
        CHECK(spread(group_counts(owners, begin, begin + slices, n)) == (slices * p % n == 0 ? 0 : 1));
      if (slices % n == 0) CHECK(owners == balanced);
    }
  }
}

}  // namespace sdp
