// Owner sets of groups, against all assignments of small problems and plain loops over all workers, stages
// and blocks.

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "capture/layouts.h"
#include "catch.h"
#include "subnet/assignment.h"
#include "subnet/depth.h"
#include "subnet/plan.h"
#include "subnet/random_bits.h"

namespace sdp {
namespace {

AssignmentProblem random_problem(int workers, int owners, int groups, uint64_t seed) {
  AssignmentProblem problem{.workers = workers, .owners = owners, .flops = {}, .bytes = {}, .seed = seed};
  RandomBits random(seed);
  for (int i = 0; i < groups; ++i) {
    problem.flops.push_back(1 + random.below(1000));
    problem.bytes.push_back(1 + random.below(1000));
  }
  return problem;
}

/// `branches` of `slices` slices each; every other branch is three times as heavy.
AssignmentProblem sliced(int workers, int owners, int branches, int slices, std::vector<int>& family) {
  AssignmentProblem problem{.workers = workers, .owners = owners, .flops = {}, .bytes = {}, .seed = 5};
  family.clear();
  for (int branch = 0; branch < branches; ++branch) {
    for (int slice = 0; slice < slices; ++slice) {
      problem.flops.push_back(branch % 2 == 0 ? 1 : 3);
      problem.bytes.push_back(1);
      family.push_back(branch);
    }
  }
  return problem;
}

/// All groups in one stage, gaps of any length accepted: only the numbers of groups are to be even.
GroupDepth one_stage(const AssignmentProblem& problem) {
  const std::vector<int> zeros(problem.flops.size(), 0);
  return {zeros, zeros, /*longest_gap=*/1};
}

/// Calls `visit` with every assignment of the groups.
void for_all_assignments(int workers, int owners, size_t groups,
                         const std::function<void(const Owners&)>& visit) {
  Owners sets;
  for (int bits = 0; bits < 1 << workers; ++bits) {
    std::vector<int> set;
    for (int worker = 0; worker < workers; ++worker)
      if (bits >> worker & 1) set.push_back(worker);
    if (static_cast<int>(set.size()) == owners) sets.push_back(set);
  }
  Owners chosen(groups);
  const std::function<void(size_t)> choose = [&](size_t group) {
    if (group == groups) return visit(chosen);
    for (const std::vector<int>& set : sets) {
      chosen[group] = set;
      choose(group + 1);
    }
  };
  choose(0);
}

void check_owner_sets(const AssignmentProblem& problem, const Owners& owners) {
  REQUIRE(owners.size() == problem.flops.size());
  for (const std::vector<int>& set : owners) {
    REQUIRE(set.size() == static_cast<size_t>(problem.owners));
    CHECK(std::is_sorted(set.begin(), set.end()));
    CHECK(std::adjacent_find(set.begin(), set.end()) == set.end());
    CHECK(set.front() >= 0);
    CHECK(set.back() < problem.workers);
  }
}

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

bool has(const std::vector<int>& owners, int worker) {
  return std::find(owners.begin(), owners.end(), worker) != owners.end();
}

/// Numbers of the worker's groups by stage.
std::map<int, int> share_of(int worker, const std::vector<int>& stage, const Owners& owners) {
  std::map<int, int> share;
  for (size_t group = 0; group < owners.size(); ++group)
    share[stage[group]] += has(owners[group], worker) ? 1 : 0;
  return share;
}

/// Lengths of the runs of blocks without a group of the worker.
std::vector<int> gaps_of(int worker, const std::vector<int>& block, const Owners& owners) {
  std::set<int> present;
  for (size_t group = 0; group < owners.size(); ++group)
    if (has(owners[group], worker)) present.insert(block[group]);
  std::vector<int> gaps = {0};
  for (int b = 0; b <= block.back(); ++b) {
    if (present.count(b) == 0)
      ++gaps.back();
    else
      gaps.push_back(0);
  }
  return gaps;
}

/// Squared shares, which are smallest if they are even, and blocks by which gaps are too long.
int64_t plain_shortfall(const GroupDepth& depth, const Owners& owners, int workers) {
  int64_t result = 0;
  for (int worker = 0; worker < workers; ++worker) {
    for (const auto& [s, share] : share_of(worker, depth.stage, owners))
      result += share * share;
    for (int gap : gaps_of(worker, depth.block, owners))
      result += std::max(0, gap - depth.longest_gap);
  }
  return result;
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

/// The lowest shortfall, then FLOPs within their tolerance, then bytes, then lambda2 of all assignments.
enum class Compared { kFlops, kBytes, kLambda2 };

void check_best_of_all(const AssignmentProblem& problem, Compared compared) {
  constexpr double kRounding = 1e-9;
  const auto shortfall_of = [&](const Owners& owners) {
    return problem.depth.stage.empty() ? 0 : plain_shortfall(problem.depth, owners, problem.workers);
  };
  int64_t best = std::numeric_limits<int64_t>::max();
  std::vector<Balance> all;
  for_all_assignments(problem.workers, problem.owners, problem.flops.size(), [&](const Owners& owners) {
    const int64_t shortfall = shortfall_of(owners);
    if (shortfall > best) return;
    if (shortfall < best) all.clear();
    best = shortfall;
    all.push_back(balance_of(problem, owners));
  });
  const auto keep_up_to = [&](double Balance::*figure, double factor) {
    double least = std::numeric_limits<double>::max();
    for (const Balance& balance : all)
      least = std::min(least, balance.*figure);
    std::erase_if(all, [&](const Balance& b) { return b.*figure > factor * least + kRounding; });
    return factor * least;
  };
  const Owners owners = assign_balanced(problem);
  check_owner_sets(problem, owners);
  CHECK(assign_balanced(problem) == owners);
  CHECK(shortfall_of(owners) == best);
  const Balance found = balance_of(problem, owners);
  CHECK(found.flops_max_over_mean <= keep_up_to(&Balance::flops_max_over_mean, 1.05) + kRounding);
  if (compared == Compared::kFlops) return;
  CHECK(found.bytes_max_over_mean <= keep_up_to(&Balance::bytes_max_over_mean, 1) + kRounding);
  if (compared == Compared::kBytes) return;
  CHECK(found.lambda2_by_unit <= keep_up_to(&Balance::lambda2_by_unit, 1) + kRounding);
}

TEST_CASE("few groups: the best of all assignments, found by exhaustive search") {
  struct Whole {
    int workers, owners;
    GroupDepth depth;
  };
  const std::vector<Whole> whole = {
      {3, 1, {{0, 0, 1, 1, 1}, {0, 1, 2, 3, 4}, 4}}, {3, 2, {{0, 0, 1, 1, 1}, {0, 1, 2, 3, 4}, 2}},
      {4, 2, {{0, 0, 1, 1, 1}, {0, 1, 2, 3, 4}, 1}}, {4, 1, {{0, 0, 1, 1, 2}, {0, 1, 2, 3, 4}, 2}},
      {4, 2, {{0, 0, 0, 0, 0}, {0, 0, 1, 1, 2}, 1}}, {4, 3, {{0, 1, 1, 2, 2}, {0, 1, 2, 3, 4}, 1}},
      {5, 2, {{0, 0, 1, 1}, {0, 1, 2, 3}, 2}},       {5, 1, {{0, 0, 0, 0, 0}, {0, 1, 2, 3, 4}, 3}}};
  for (const auto& [workers, owners, depth] : whole) {
    INFO("whole, p " << owners << " of " << workers << ", gaps of " << depth.longest_gap);
    AssignmentProblem problem = random_problem(workers, owners, static_cast<int>(depth.stage.size()), 7);
    problem.depth = depth;
    check_best_of_all(problem, Compared::kFlops);
  }
  const auto without_tolerance = [](int n, int p, int groups, uint64_t seed) {
    AssignmentProblem problem = random_problem(n, p, groups, seed);
    problem.bytes_tolerance = problem.bytes_for_mixing = 0;
    return problem;
  };
  for (uint64_t seed = 0; seed < 3; ++seed) {
    INFO("unequal, seed " << seed);
    check_best_of_all(without_tolerance(4, 2, 5, seed), Compared::kBytes);
  }
  for (const auto& [n, p, groups] :
       {std::tuple{4, 2, 4}, {4, 1, 4}, {4, 3, 4}, {4, 3, 3}, {4, 2, 3}, {3, 1, 4}, {3, 2, 4}, {2, 1, 3}})
    for (uint64_t seed = 0; seed < 2; ++seed) {
      INFO("equal numbers, n " << n << ", p " << p << ", groups " << groups << ", seed " << seed);
      AssignmentProblem problem = without_tolerance(n, p, groups, seed);
      problem.depth = one_stage(problem);
      check_best_of_all(problem, Compared::kLambda2);
    }
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
  CHECK(balance.lambda2_by_bytes == Approx(1));
  CHECK(balance.lambda2_by_flops == Approx(1.0 / 3));
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

TEST_CASE("the shortfall of whole subnetworks follows every change of owners") {
  RandomBits random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const int n = 2 + random.below(6);
    const int p = 1 + random.below(n - 1);
    GroupDepth depth{{0}, {0}, 1 + random.below(3)};
    while (depth.stage.size() < 9) {
      depth.stage.push_back(depth.stage.back() + (random.below(3) == 0 ? 1 : 0));
      depth.block.push_back(depth.block.back() + random.below(2));
    }
    Owners owners = assign_random(random_problem(n, p, 9, random.next()));
    Wholeness wholeness(depth, n, owners);
    const int64_t least = plain_shortfall(depth, owners, n) - wholeness.shortfall();
    for (int change = 0; change < 20; ++change) {
      const int group = random.below(9);
      const int out = owners[group][random.below(p)];
      const int in = random.below(n);
      if (has(owners[group], in)) continue;
      std::replace(owners[group].begin(), owners[group].end(), out, in);
      wholeness.remove(group, out);
      wholeness.add(group, in);
      CHECK(wholeness.shortfall() == plain_shortfall(depth, owners, n) - least);
      CHECK(wholeness.in_stage_of(group, in) == share_of(in, depth.stage, owners)[depth.stage[group]]);
    }
  }
}

TEST_CASE("every worker has an even share of each stage of every model, and no long run of absent blocks") {
  // Blocks of the stages, as torchvision and transformers have them.
  const std::map<std::string, std::vector<int>> models = {
      {"resnet18", {2, 2, 2, 2}}, {"resnet50", {3, 4, 6, 3}}, {"swin_t", {2, 2, 6, 2}}, {"llama_134m", {12}}};
  for (const auto& [name, blocks_of_stages] : models) {
    std::vector<int> stage_of_block;
    for (size_t stage = 0; stage < blocks_of_stages.size(); ++stage)
      stage_of_block.insert(stage_of_block.end(), blocks_of_stages[stage], static_cast<int>(stage));
    const ModelLayout layout = layout_of(model_named(name), /*sequence_length=*/64);
    for (const auto& [n, p] : {std::pair{8, 2}, {8, 3}, {3, 2}, {64, 24}}) {
      INFO(name << ", p " << p << " of " << n);
      SubnetworkSpec spec;
      spec.workers = n;
      spec.coverage.text = std::to_string(p) + "/" + std::to_string(n);
      const SubnetPlan plan = make_plan(layout, spec, 0);
      Owners of_block(stage_of_block.size());
      for (const Unit& unit : plan.units)
        of_block[layout.branches[unit.branch].block] = unit.owners.members();
      std::vector<int> block(of_block.size());
      for (size_t b = 0; b < block.size(); ++b)
        block[b] = static_cast<int>(b);
      for (int stage = 0; stage <= stage_of_block.back(); ++stage) {
        std::vector<int> shares;
        for (int worker = 0; worker < n; ++worker)
          shares.push_back(share_of(worker, stage_of_block, of_block)[stage]);
        CHECK(spread(shares) <= 1);
      }
      for (int worker = 0; worker < n; ++worker) {
        const WorkerDepth depth = depth_of(plan, worker);
        const std::vector<int> gaps = gaps_of(worker, block, of_block);
        CHECK(depth.longest_gap_blocks == *std::max_element(gaps.begin(), gaps.end()));
        CHECK(depth.longest_gap_blocks <= (n + p - 1) / p + 1);
        const int branches_of_block = static_cast<int>(layout.branches.size() / block.size());
        for (const auto& [stage, share] : share_of(worker, stage_of_block, of_block)) {
          CHECK(depth.branches_by_stage.at(stage) == share * branches_of_block);
          if (blocks_of_stages[stage] * p >= n) CHECK(share > 0);
        }
      }
    }
  }
}

}  // namespace sdp
