// Owner sets of groups and of slices. What is expected is counted from owner sets alone, by plain loops over
// all workers, stages and blocks; the best of few groups is found by exhaustive search.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "catch.h"
#include "cost/layouts.h"
#include "subnet/assignment.h"
#include "subnet/depth.h"
#include "subnet/plan.h"
#include "subnet/random_bits.h"

namespace sdp {
namespace {

constexpr double kRounding = 1e-9;

AssignmentProblem random_problem(int workers, int owners, int groups, uint64_t seed) {
  AssignmentProblem problem{.workers = workers, .owners = owners, .flops = {}, .bytes = {}, .seed = seed};
  RandomBits random(seed);
  for (int i = 0; i < groups; ++i) {
    problem.flops.push_back(1 + random.below(1000));
    problem.bytes.push_back(1 + random.below(1000));
  }
  return problem;
}

/// All groups in one stage, gaps of any length accepted: only the numbers of groups are to be even.
GroupDepth one_stage(const AssignmentProblem& problem) {
  const std::vector<int> zeros(problem.flops.size(), 0);
  return {zeros, zeros, /*longest_gap=*/1};
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

bool has(const std::vector<int>& owners, int worker) {
  return std::find(owners.begin(), owners.end(), worker) != owners.end();
}

/// The largest minus the smallest number of the groups [begin, end) that a worker owns.
int spread(const Owners& owners, size_t begin, size_t end, int workers) {
  std::vector<int> count(workers, 0);
  for (size_t group = begin; group < end; ++group)
    for (int worker : owners[group])
      ++count[worker];
  const auto [smallest, largest] = std::minmax_element(count.begin(), count.end());
  return *largest - *smallest;
}

/// Whether `balance` is no worse than `other` in the order of assign_balanced, without tolerance for bytes.
bool not_worse(const Balance& balance, const Balance& other) {
  if (balance.flops_max_over_mean > 1.05 * other.flops_max_over_mean + kRounding) return false;
  // `other` is uneven in FLOPs: no further comparison.
  if (other.flops_max_over_mean > 1.05 * balance.flops_max_over_mean) return true;
  if (balance.bytes_max_over_mean > other.bytes_max_over_mean + kRounding) return false;
  if (balance.bytes_max_over_mean < other.bytes_max_over_mean - kRounding) return true;
  return balance.lambda2_by_unit <= other.lambda2_by_unit + kRounding;
}

TEST_CASE("every group gets p different owners, and balanced is never worse than window or random") {
  RandomBits random(21);
  for (uint64_t trial = 0; trial < 9; ++trial) {
    const int n = 2 + random.below(12);
    AssignmentProblem problem = random_problem(n, 1 + random.below(n), 1 + random.below(30), trial);
    if (trial % 3 == 0) problem.bytes = problem.flops;
    if (trial % 3 == 1) problem.flops.assign(problem.flops.size(), 1);
    if (trial % 2 == 0) problem.bytes_fixed = problem.flops_fixed = 500;
    const Owners owners = assign_balanced(problem);
    check_owner_sets(problem, owners);
    for (auto assign : {assign_window, assign_random}) {
      const Owners plain = assign(problem);
      check_owner_sets(problem, plain);
      CHECK(assign(problem) == plain);
      CHECK(not_worse(balance_of(problem, owners), balance_of(problem, plain)));
    }
  }
  for (const auto& [n, p] : {std::pair{6, 2}, {8, 3}}) {  // nor than an even window in one stage
    AssignmentProblem problem = random_problem(n, p, 2 * n, 3);
    problem.depth = one_stage(problem);
    CHECK(not_worse(balance_of(problem, assign_balanced(problem)),
                    balance_of(problem, assign_window(problem))));
  }
}

TEST_CASE("the window and the balance by hand; owner sets do not depend on the machine") {
  CHECK(assign_window(random_problem(4, 3, 6, 0)) ==
        Owners{{0, 1, 2}, {1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}, {1, 2, 3}});
  const Balance balance = balance_of(
      {.workers = 2, .owners = 1, .flops = {3, 1}, .bytes = {1, 1}, .flops_fixed = 1, .bytes_fixed = 5},
      {{0}, {1}});
  CHECK(balance.flops_max_over_mean == Approx(4.0 / 3));
  CHECK(balance.bytes_max_over_mean == Approx(1));
  CHECK(balance.lambda2_by_unit == Approx(1));
  // Recorded once: a change means that the same spec would give another plan than before.
  const AssignmentProblem problem = random_problem(5, 2, 4, 9);
  CHECK(assign_random(problem) == Owners{{3, 4}, {1, 4}, {0, 1}, {3, 4}});
  CHECK(assign_balanced(problem) == Owners{{2, 4}, {2, 3}, {3, 4}, {0, 1}});
}

TEST_CASE("equal groups: even loads, and the lambda2 of the known designs") {
  struct Design {
    int workers, owners;
    size_t groups;
    double lambda2;
  };
  for (const auto& [n, p, groups, lambda2] :
       {Design{8, 4, 14, 1.0 / 7},  // affine hyperplanes
        Design{8, 3, 8, 1.0 / 3}, Design{8, 5, 8, 1.0 / 3 * 9 / 25}, Design{7, 3, 7, 4.0 / 18},  // Fano plane
        Design{4, 2, 6, 1.0 / 3}}) {                                                             // all pairs
    const AssignmentProblem problem{.workers = n,
                                    .owners = p,
                                    .flops = std::vector<double>(groups, 2.5),
                                    .bytes = std::vector<double>(groups, 0.1)};
    const Balance found = balance_of(problem, assign_balanced(problem));
    CHECK(found.flops_max_over_mean == Approx(1).epsilon(1e-12));
    CHECK(found.bytes_max_over_mean == Approx(1).epsilon(1e-12));
    CHECK(found.lambda2_by_unit <= lambda2 + kRounding);
  }
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

TEST_CASE("ResNet-18's blocks: no figure is above the reference, unless another that comes first is below") {
  struct Reference {
    int owners;
    double flops, bytes, lambda2;  ///< max/mean, max/mean, by unit; only of the branches
  };
  constexpr double kThreeDigits = 5.1e-4;
  for (const Reference& reference : {Reference{7, 1.025, 1.135, 0.020}, Reference{6, 1.011, 1.217, 0.095},
                                     Reference{4, 1.034, 1.127, 0.250}, Reference{3, 1.011, 1.378, 0.444},
                                     Reference{2, 1.103, 1.745, 0.854}}) {
    AssignmentProblem usual = resnet18(reference.owners), lowest_memory = usual, even_numbers = usual;
    lowest_memory.bytes_for_mixing = 0;
    even_numbers.depth = one_stage(usual);
    std::vector<AssignmentProblem> problems = {usual, lowest_memory};
    if (reference.owners == 3) problems.push_back(even_numbers);  // they cost nothing
    for (const AssignmentProblem& problem : problems) {
      const Balance found = balance_of(problem, assign_balanced(problem));
      INFO("p = " << reference.owners << ": " << found.flops_max_over_mean << ", "
                  << found.bytes_max_over_mean << ", " << found.lambda2_by_unit);
      CHECK(found.flops_max_over_mean <= 1.05 * reference.flops);
      const bool fewer_bytes = found.bytes_max_over_mean < reference.bytes - kThreeDigits;
      const bool as_good = found.bytes_max_over_mean <= reference.bytes + kThreeDigits &&
                           found.lambda2_by_unit <= reference.lambda2 + kThreeDigits;
      CHECK((as_good || (problem.bytes_for_mixing == 0 && fewer_bytes)));
    }
  }
}

TEST_CASE("64 workers and 1,000 units have even loads and mix") {
  for (int p : {8, 32, 56}) {
    const AssignmentProblem problem = random_problem(64, p, 1000, 3);
    const Owners owners = assign_balanced(problem);
    check_owner_sets(problem, owners);
    const Balance balance = balance_of(problem, owners);
    CHECK(balance.flops_max_over_mean < 1.06);
    CHECK(balance.bytes_max_over_mean < 1.02);
    CHECK(balance.lambda2_by_unit <= 1.2 * balance_of(problem, assign_random(problem)).lambda2_by_unit);
  }
}

/// `branches` of `slices` slices each, and the branch of every slice; every other branch is three times as
/// heavy.
std::pair<AssignmentProblem, std::vector<int>> sliced(int workers, int owners, int branches, int slices) {
  AssignmentProblem problem{.workers = workers, .owners = owners, .flops = {}, .bytes = {}, .seed = 5};
  std::vector<int> family;
  for (int slice = 0; slice < branches * slices; ++slice) {
    family.push_back(slice / slices);
    problem.flops.push_back(family.back() % 2 == 0 ? 1 : 3);
    problem.bytes.push_back(1);
  }
  return {problem, family};
}

TEST_CASE("slices: even numbers in every branch and in all, even loads, and workers mix") {
  constexpr int kBranches = 12;
  for (const auto& [n, p] : {std::pair{2, 1}, {3, 2}, {8, 4}, {8, 3}, {8, 7}, {5, 2}, {16, 4}})
    for (int slices = 1; slices <= 2 * n + 1; ++slices) {
      INFO("n " << n << ", p " << p << ", slices " << slices);
      const auto [problem, family] = sliced(n, p, kBranches, slices);
      const Owners owners = assign_balanced_slices(problem, family);
      const Owners equal = assign_balanced_slices(problem, family, /*equal_numbers=*/true);
      check_owner_sets(problem, owners);
      check_owner_sets(problem, equal);
      CHECK(owners == assign_balanced_slices(problem, family));
      CHECK(spread(equal, 0, equal.size(), n) == (kBranches * slices * p % n == 0 ? 0 : 1));
      for (size_t begin = 0; begin < equal.size(); begin += slices)
        CHECK(spread(equal, begin, begin + slices, n) == (slices * p % n == 0 ? 0 : 1));
      const Balance balance = balance_of(problem, owners);
      // Left-over slices go to the lightest workers: none is heavier than the mean by more than a slice.
      const double mean = 2.0 * kBranches * slices * p / n;
      CHECK(balance.flops_max_over_mean <= 1 + 3 / mean + kRounding);
      if (slices % n != 0) continue;
      CHECK(owners == equal);
      CHECK(balance.flops_max_over_mean == Approx(1));
      // No assignment with even loads is below the bound.
      const double bound = static_cast<double>(n - p) / (p * (n - 1));
      CHECK(balance.lambda2_by_unit >= bound - 1e-12);
      CHECK(balance.lambda2_by_unit < 1.35 * bound);
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
  CHECK(assign_balanced_slices(dense, {0, 0}) == assign_window(dense));
  CHECK_THROWS_AS(assign_balanced_slices(dense, {0}), std::logic_error);
  CHECK_THROWS_AS(assign_balanced(random_problem(3, 4, 2, 0)), std::logic_error);
  CHECK_THROWS_AS(assign_window(random_problem(3, 0, 2, 0)), std::logic_error);
  CHECK_THROWS_AS(assign_random({.workers = 2, .owners = 1, .flops = {1}, .bytes = {}}), std::logic_error);
  CHECK_THROWS_AS(assign_balanced({.workers = 2, .owners = 1, .flops = {NAN}, .bytes = {1}}),
                  std::logic_error);
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
    if (present.contains(b))
      gaps.push_back(0);
    else
      ++gaps.back();
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

/// The lowest shortfall, then FLOPs within their tolerance, then bytes, then lambda2 of all assignments.
enum class Compared { kFlops, kBytes, kLambda2 };

void check_best_of_all(const AssignmentProblem& problem, Compared compared) {
  INFO(problem.owners << " of " << problem.workers << ", seed " << problem.seed << ", gaps of "
                      << problem.depth.longest_gap);
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
    AssignmentProblem problem = random_problem(workers, owners, static_cast<int>(depth.stage.size()), 7);
    problem.depth = depth;
    check_best_of_all(problem, Compared::kFlops);
  }
  const auto check_without_tolerance = [](int n, int p, int groups, uint64_t seed, bool equal_numbers) {
    AssignmentProblem problem = random_problem(n, p, groups, seed);
    problem.bytes_tolerance = problem.bytes_for_mixing = 0;
    if (equal_numbers) problem.depth = one_stage(problem);
    check_best_of_all(problem, equal_numbers ? Compared::kLambda2 : Compared::kBytes);
  };
  for (uint64_t seed = 0; seed < 3; ++seed)
    check_without_tolerance(4, 2, 5, seed, /*equal_numbers=*/false);
  for (const auto& [n, p, groups] :
       {std::tuple{4, 2, 4}, {4, 1, 4}, {4, 3, 4}, {4, 3, 3}, {4, 2, 3}, {3, 1, 4}, {3, 2, 4}, {2, 1, 3}})
    for (uint64_t seed = 0; seed < 2; ++seed)
      check_without_tolerance(n, p, groups, seed, /*equal_numbers=*/true);
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

TEST_CASE("every worker has an even share of each stage of a model, and no long run of absent blocks") {
  struct Case {
    std::string model;
    std::vector<int> blocks_of_stages;  ///< as torchvision and transformers have them
    int workers, owners;
  };
  for (const auto& [name, blocks_of_stages, n, p] :
       {Case{"resnet18", {2, 2, 2, 2}, 8, 2}, Case{"resnet18", {2, 2, 2, 2}, 3, 2},
        Case{"resnet50", {3, 4, 6, 3}, 8, 3}, Case{"swin_t", {2, 2, 6, 2}, 8, 3},
        Case{"llama_134m", {12}, 8, 2}, Case{"llama_134m", {12}, 64, 24}}) {
    std::vector<int> stage;  // by block
    for (size_t s = 0; s < blocks_of_stages.size(); ++s)
      stage.insert(stage.end(), blocks_of_stages[s], static_cast<int>(s));
    const ModelLayout layout = layout_of(model_named(name), /*sequence_length=*/64);
    INFO(name << ", p " << p << " of " << n);
    SubnetworkSpec spec;
    spec.workers = n;
    spec.coverage.text = std::to_string(p) + "/" + std::to_string(n);
    const SubnetPlan plan = make_plan(layout, spec, 0);
    Owners of_block(stage.size());
    for (const Unit& unit : plan.units)
      of_block[layout.branches[unit.branch].block] = unit.owners.members();
    std::vector<int> block(of_block.size());
    std::iota(block.begin(), block.end(), 0);
    for (int s = 0; s <= stage.back(); ++s) {
      const auto [begin, end] = std::equal_range(stage.begin(), stage.end(), s);
      CHECK(spread(of_block, begin - stage.begin(), end - stage.begin(), n) <= 1);
    }
    const int branches_of_block = static_cast<int>(layout.branches.size() / block.size());
    for (int worker = 0; worker < n; ++worker) {
      const WorkerDepth depth = depth_of(plan, worker);
      const std::vector<int> gaps = gaps_of(worker, block, of_block);
      CHECK(depth.longest_gap_blocks == *std::max_element(gaps.begin(), gaps.end()));
      CHECK(depth.longest_gap_blocks <= (n + p - 1) / p + 1);
      for (const auto& [s, share] : share_of(worker, stage, of_block)) {
        CHECK(depth.branches_by_stage.at(s) == share * branches_of_block);
        if (blocks_of_stages[s] * p >= n) CHECK(share > 0);
      }
    }
  }
}

}  // namespace
}  // namespace sdp
