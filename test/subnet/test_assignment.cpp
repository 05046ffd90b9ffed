// Owner sets of groups and of slices.

#include <algorithm>
#include <cmath>
#include <ctime>
#include <stdexcept>

#include "assignment_problems.h"
#include "catch.h"
#include "subnet/assignment.h"
#include "subnet/random_bits.h"

namespace sdp {
namespace {

using test::check_owner_sets;
using test::group_counts;
using test::one_stage;
using test::random_problem;
using test::sliced;
using test::spread;

/// Whether `balance` is no worse than `other` in the order of assign_balanced, without tolerance for bytes.
bool not_worse(const Balance& balance, const Balance& other) {
  constexpr double kRounding = 1e-9;
  if (balance.flops_max_over_mean > 1.05 * other.flops_max_over_mean + kRounding) return false;
  // `other` is uneven in FLOPs: no further comparison.
  if (other.flops_max_over_mean > 1.05 * balance.flops_max_over_mean) return true;
  if (balance.bytes_max_over_mean > other.bytes_max_over_mean + kRounding) return false;
  if (balance.bytes_max_over_mean < other.bytes_max_over_mean - kRounding) return true;
  return balance.lambda2_by_unit <= other.lambda2_by_unit + kRounding;
}

/// ResNet-18 for CIFAR: its eight residual branches (two 3x3 convolutions and their norms each), eight
/// workers.
AssignmentProblem resnet18(int owners) {
  AssignmentProblem problem{.workers = 8, .owners = owners, .flops = {}, .bytes = {}};
  double in = 64;
  double size = 32;
  for (double out : {64., 64., 128., 128., 256., 256., 512., 512.}) {
    if (out != in) size /= 2;
    const double weights = 9 * in * out + 9 * out * out;
    problem.bytes.push_back(weights + 4 * out);
    problem.flops.push_back(3 * 2 * weights * size * size);
    in = out;
  }
  return problem;
}

struct Reference {
  int owners;
  double flops, bytes, lambda2;  ///< max/mean, max/mean, by unit; only of the branches
};
constexpr Reference kResNet18[] = {{7, 1.025, 1.135, 0.020},
                                   {6, 1.011, 1.217, 0.095},
                                   {4, 1.034, 1.127, 0.250},
                                   {3, 1.011, 1.378, 0.444},
                                   {2, 1.103, 1.745, 0.854}};
constexpr double kThreeDigits = 5.1e-4;

}  // namespace

TEST_CASE("every assignment gives each group exactly p different owners, reproducibly") {
  RandomBits random(11);
  for (int n : {1, 2, 3, 5, 8, 13, 64}) {
    const int p = 1 + random.below(n);
    const AssignmentProblem problem = random_problem(n, p, 1 + random.below(60), static_cast<uint64_t>(n));
    for (auto assign : {assign_balanced, assign_window, assign_random}) {
      const Owners owners = assign(problem);
      check_owner_sets(problem, owners);
      CHECK(assign(problem) == owners);
    }
    if (n == 1 || n > 8) continue;
    for (int groups : {1, n - 1, n + 1}) {  // of one stage: numbers per worker differ by one at most
      AssignmentProblem equal = random_problem(n, p, groups, random.next());
      equal.bytes_for_mixing = 0;
      equal.depth = one_stage(equal);
      const Owners owners = assign_balanced(equal);
      check_owner_sets(equal, owners);
      CHECK(spread(owners, n) == (groups * p % n == 0 ? 0 : 1));
      CHECK(assign_balanced(equal) == owners);
    }
  }
}

TEST_CASE("the window follows its definition") {
  const AssignmentProblem problem = random_problem(4, 3, 6, 0);
  CHECK(assign_window(problem) == Owners{{0, 1, 2}, {1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}, {1, 2, 3}});
}

TEST_CASE("owner sets do not depend on the machine") {
  // Recorded once: a change means that the same spec would give another plan than before.
  const AssignmentProblem problem = random_problem(5, 2, 4, 9);
  CHECK(assign_random(problem) == Owners{{3, 4}, {1, 4}, {0, 1}, {3, 4}});
  CHECK(assign_balanced(problem) == Owners{{2, 4}, {2, 3}, {3, 4}, {0, 1}});
}

TEST_CASE("balanced is never worse than window or random") {
  RandomBits random(21);
  for (uint64_t trial = 0; trial < 12; ++trial) {
    const int n = 2 + random.below(12);
    AssignmentProblem problem = random_problem(n, 1 + random.below(n), 1 + random.below(30), trial);
    if (trial % 3 == 0) problem.bytes = problem.flops;
    if (trial % 3 == 1) problem.flops.assign(problem.flops.size(), 1);
    if (trial % 2 == 0) problem.bytes_fixed = problem.flops_fixed = 500;
    const Balance balanced = balance_of(problem, assign_balanced(problem));
    CHECK(not_worse(balanced, balance_of(problem, assign_window(problem))));
    CHECK(not_worse(balanced, balance_of(problem, assign_random(problem))));
  }
  for (const auto& [n, p] : {std::pair{6, 2}, {8, 3}}) {  // nor than an even window in one stage
    AssignmentProblem problem = random_problem(n, p, 2 * n, 3);
    problem.depth = one_stage(problem);
    CHECK(not_worse(balance_of(problem, assign_balanced(problem)),
                    balance_of(problem, assign_window(problem))));
  }
}

TEST_CASE("equal groups: even loads, and the lambda2 of the known designs") {
  const auto equal = [](int workers, int owners, int groups) {
    AssignmentProblem problem{.workers = workers, .owners = owners, .flops = {}, .bytes = {}};
    problem.flops.assign(static_cast<size_t>(groups), 2.5);
    problem.bytes.assign(static_cast<size_t>(groups), 0.1);
    return problem;
  };
  const auto found = [](const AssignmentProblem& problem) {
    return balance_of(problem, assign_balanced(problem));
  };
  const Balance affine = found(equal(8, 4, 14));
  CHECK(affine.flops_max_over_mean == Approx(1).epsilon(1e-12));
  CHECK(affine.bytes_max_over_mean == Approx(1).epsilon(1e-12));
  CHECK(affine.lambda2_by_unit == Approx(1.0 / 7).epsilon(1e-9));
  CHECK(found(equal(8, 3, 8)).lambda2_by_unit <= 1.0 / 3 + 1e-9);
  CHECK(found(equal(8, 5, 8)).lambda2_by_unit <= 1.0 / 3 * 9 / 25 + 1e-9);
  CHECK(found(equal(7, 3, 7)).lambda2_by_unit == Approx(4.0 / 18).epsilon(1e-9));  // Fano plane
  CHECK(found(equal(4, 2, 6)).lambda2_by_unit == Approx(1.0 / 3).epsilon(1e-9));   // all pairs
}

TEST_CASE(
    "ResNet-18's eight blocks: no figure is above the reference; lowest memory in lexicographic order") {
  for (const Reference& reference : kResNet18) {
    for (const bool lowest_memory : {false, true}) {
      AssignmentProblem problem = resnet18(reference.owners);
      if (lowest_memory) problem.bytes_for_mixing = 0;
      const Balance found = balance_of(problem, assign_balanced(problem));
      INFO("p = " << reference.owners << ": " << found.flops_max_over_mean << ", "
                  << found.bytes_max_over_mean << ", " << found.lambda2_by_unit);
      CHECK(found.flops_max_over_mean <= 1.05 * reference.flops);
      const bool fewer_bytes = found.bytes_max_over_mean < reference.bytes - kThreeDigits;
      const bool as_good = found.bytes_max_over_mean <= reference.bytes + kThreeDigits &&
                           found.lambda2_by_unit <= reference.lambda2 + kThreeDigits;
      CHECK((as_good || (lowest_memory && fewer_bytes)));
    }
  }
  AssignmentProblem equal = resnet18(3);  // equal numbers cost nothing
  equal.depth = one_stage(equal);
  const Balance found = balance_of(equal, assign_balanced(equal));
  CHECK(found.flops_max_over_mean <= 1.05 * kResNet18[3].flops);
  CHECK(found.bytes_max_over_mean <= kResNet18[3].bytes + kThreeDigits);
  CHECK(found.lambda2_by_unit <= kResNet18[3].lambda2 + kThreeDigits);
}

TEST_CASE("balance matches a computation by hand") {
  const AssignmentProblem problem{
      .workers = 2, .owners = 1, .flops = {3, 1}, .bytes = {1, 1}, .flops_fixed = 1, .bytes_fixed = 5};
  const Balance balance = balance_of(problem, {{0}, {1}});
  CHECK(balance.flops_max_over_mean == Approx(4.0 / 3));
  CHECK(balance.bytes_max_over_mean == Approx(1));
  CHECK(balance.lambda2_by_unit == Approx(1));
}

TEST_CASE("64 workers and 1,000 units within a second") {
#ifdef NDEBUG
  constexpr double kLimitSeconds = 1;
#else
  constexpr double kLimitSeconds = 30;
#endif
  for (int p : {8, 32, 56}) {
    const AssignmentProblem problem = random_problem(64, p, 1000, 3);
    const std::clock_t start = std::clock();
    const Owners owners = assign_balanced(problem);
    CHECK(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < kLimitSeconds);
    check_owner_sets(problem, owners);
    const Balance balance = balance_of(problem, owners);
    CHECK(balance.flops_max_over_mean < 1.06);
    CHECK(balance.bytes_max_over_mean < 1.02);
    CHECK(balance.lambda2_by_unit <= 1.2 * balance_of(problem, assign_random(problem)).lambda2_by_unit);
  }
}

TEST_CASE("slices: every worker owns p of every n slices of a branch, and workers mix") {
  std::vector<int> family;
  for (const auto& [n, p] : {std::pair{8, 4}, {8, 3}, {8, 7}, {5, 2}, {16, 4}}) {
    for (int rounds : {1, 2}) {
      const AssignmentProblem problem = sliced(n, p, 12, rounds * n, family);
      const Owners owners = assign_balanced_slices(problem, family);
      check_owner_sets(problem, owners);
      CHECK(owners == assign_balanced_slices(problem, family));
      std::vector<int> owned(12 * n, 0);
      for (size_t group = 0; group < owners.size(); ++group)
        for (int worker : owners[group])
          ++owned[family[group] * n + worker];
      CHECK(std::all_of(owned.begin(), owned.end(), [&](int count) { return count == rounds * p; }));
      const Balance balance = balance_of(problem, owners);
      CHECK(balance.flops_max_over_mean == Approx(1));
      // No assignment with even loads is below the bound.
      const double bound = static_cast<double>(n - p) / (p * (n - 1));
      CHECK(balance.lambda2_by_unit >= bound - 1e-12);
      CHECK(balance.lambda2_by_unit < 1.35 * bound);
    }
  }
}

TEST_CASE("slices: other branches compensate for a branch with fewer slices than workers") {
  std::vector<int> family;
  const AssignmentProblem few = sliced(8, 4, 6, 3, family);
  const Owners owners = assign_balanced_slices(few, family);
  check_owner_sets(few, owners);
  CHECK(balance_of(few, owners).flops_max_over_mean <= 1 + 3.0 / (6 * 3 * 2 * 4 / 8));
  CHECK_THROWS_AS(assign_balanced_slices(few, {0, 1}), std::logic_error);
  const AssignmentProblem all = sliced(4, 4, 2, 3, family);
  CHECK(assign_balanced_slices(all, family) == assign_window(all));
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

TEST_CASE("no group, no load, everything owned, impossible problems") {
  CHECK(assign_balanced({.workers = 4, .owners = 2, .flops = {}, .bytes = {}}).empty());
  const AssignmentProblem weightless{.workers = 4, .owners = 2, .flops = {0, 0}, .bytes = {0, 0}};
  check_owner_sets(weightless, assign_balanced(weightless));
  CHECK(balance_of(weightless, assign_balanced(weightless)).flops_max_over_mean == 1);
  const AssignmentProblem dense = random_problem(3, 3, 2, 0);
  for (auto assign : {assign_balanced, assign_window, assign_random})
    CHECK(assign(dense) == Owners{{0, 1, 2}, {0, 1, 2}});
  CHECK_THROWS_AS(assign_balanced(random_problem(3, 4, 2, 0)), std::logic_error);
  CHECK_THROWS_AS(assign_window(random_problem(3, 0, 2, 0)), std::logic_error);
  CHECK_THROWS_AS(assign_random({.workers = 2, .owners = 1, .flops = {1}, .bytes = {}}), std::logic_error);
  CHECK_THROWS_AS(assign_balanced({.workers = 2, .owners = 1, .flops = {NAN}, .bytes = {1}}),
                  std::logic_error);
}

}  // namespace sdp
