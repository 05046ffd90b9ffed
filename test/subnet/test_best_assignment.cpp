// The best of all assignments, and whole subnetworks: an even share of every stage, and no long run of absent
// blocks. What is expected is counted from owner sets alone, by plain loops over all workers, stages and
// blocks.

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "assignment_problems.h"
#include "catch.h"
#include "cost/layouts.h"
#include "subnet/assignment.h"
#include "subnet/depth.h"
#include "subnet/plan.h"
#include "subnet/random_bits.h"

namespace sdp {
namespace {

using test::check_owner_sets;
using test::one_stage;
using test::random_problem;
using test::spread;

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

}  // namespace

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
