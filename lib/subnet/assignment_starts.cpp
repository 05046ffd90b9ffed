#include "subnet/assignment_starts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

#include "subnet/designs.h"

namespace sdp {
namespace {

/// Group numbers, the heaviest group first.
std::vector<int> by_weight(const std::vector<double>& weights) {
  std::vector<int> groups(weights.size());
  std::iota(groups.begin(), groups.end(), 0);
  std::stable_sort(groups.begin(), groups.end(), [&](int a, int b) { return weights[a] > weights[b]; });
  return groups;
}

/// Gives the sets in turn to the groups, heaviest group first.
Owners deal(const Owners& sets, const std::vector<int>& groups) {
  Owners owners(groups.size());
  for (size_t i = 0; i < groups.size(); ++i)
    owners[groups[i]] = sets[i % sets.size()];
  return owners;
}

/// Longest processing time first: every group goes to the p workers with the smallest load so far. Loads are
/// perturbed by up to `noise` times the group's weight; the lighter groups, which come last, compensate for
/// it.
Owners greedy(const AssignmentProblem& problem, const std::vector<double>& weights, int noise,
              RandomBits& random) {
  std::vector<double> loads(problem.workers, 0);
  std::vector<std::pair<double, int>> order(problem.workers);  // perturbed load, worker
  Owners owners(weights.size());
  for (int group : by_weight(weights)) {
    for (int worker = 0; worker < problem.workers; ++worker) {
      const double perturbation = weights[group] * noise * random.below(1024) / 1024;
      order[worker] = {loads[worker] + perturbation, worker};
    }
    std::sort(order.begin(), order.end());
    for (int i = 0; i < problem.owners; ++i) {
      owners[group].push_back(order[i].second);
      loads[order[i].second] += weights[group];
    }
    std::sort(owners[group].begin(), owners[group].end());
  }
  return owners;
}

/// Moves the groups of [begin, end) from the worker with the most to the worker with the fewest of them,
/// until these numbers differ by at most one.
void make_even(Owners::iterator begin, Owners::iterator end, int workers) {
  std::vector<int> count(workers, 0);
  for (auto set = begin; set != end; ++set)
    for (int worker : *set)
      ++count[worker];
  while (true) {
    const auto [fewest, most] = std::minmax_element(count.begin(), count.end());
    if (*most - *fewest <= 1) return;
    const int from = static_cast<int>(most - count.begin());
    const int to = static_cast<int>(fewest - count.begin());
    // Such a group exists because `from` has more groups.
    std::vector<int>& set = *std::find_if(begin, end, [&](const std::vector<int>& owned) {
      return std::binary_search(owned.begin(), owned.end(), from) &&
             !std::binary_search(owned.begin(), owned.end(), to);
    });
    *std::find(set.begin(), set.end(), from) = to;
    std::sort(set.begin(), set.end());
    --*most;
    ++*fewest;
  }
}

/// In order of depth, every group goes to the workers with the fewest groups of its stage, among these first
/// to those whose gap would become too long, and otherwise at random.
Owners in_order_of_depth(const AssignmentProblem& problem, RandomBits& random) {
  const GroupDepth& depth = problem.depth;
  std::vector<int> in_stage(problem.workers, 0);
  std::vector<int> last_block(problem.workers, -1);
  std::vector<std::array<int, 4>> order(problem.workers);  // the keys, and the worker
  Owners owners(depth.stage.size());
  for (size_t group = 0; group < owners.size(); ++group) {
    if (group > 0 && depth.stage[group] != depth.stage[group - 1]) in_stage.assign(problem.workers, 0);
    for (int worker = 0; worker < problem.workers; ++worker) {
      const bool has_time = depth.block[group] - last_block[worker] <= depth.longest_gap;
      order[worker] = {in_stage[worker], has_time ? 1 : 0, random.below(1 << 30), worker};
    }
    std::sort(order.begin(), order.end());
    for (int i = 0; i < problem.owners; ++i) {
      const int worker = order[i].back();
      owners[group].push_back(worker);
      ++in_stage[worker];
      last_block[worker] = depth.block[group];
    }
    std::sort(owners[group].begin(), owners[group].end());
  }
  return owners;
}

/// FLOPs and bytes of every group, each as a share of the total over all groups.
std::vector<double> combined_weights(const AssignmentProblem& problem) {
  const double flops = std::accumulate(problem.flops.begin(), problem.flops.end(), 0.0);
  const double bytes = std::accumulate(problem.bytes.begin(), problem.bytes.end(), 0.0);
  std::vector<double> weights(problem.flops.size(), 0);
  for (size_t group = 0; group < weights.size(); ++group) {
    if (flops > 0) weights[group] += problem.flops[group] / flops;
    if (bytes > 0) weights[group] += problem.bytes[group] / bytes;
  }
  return weights;
}

/// Whole: each group's owners are the workers that follow the previous group's, modulo
/// n. Of any consecutive groups the workers own numbers that differ by at most one, and gaps have fewer than
/// n/p groups.
Owners in_turn(const AssignmentProblem& problem) {
  Owners result(problem.flops.size());
  int next = 0;
  for (std::vector<int>& set : result) {
    for (int i = 0; i < problem.owners; ++i, next = (next + 1) % problem.workers)
      set.push_back(next);
    std::sort(set.begin(), set.end());
  }
  return result;
}

}  // namespace

void make_stages_even(Owners& owners, const AssignmentProblem& problem) {
  const std::vector<int>& stage = problem.depth.stage;
  for (size_t begin = 0; begin < stage.size();) {
    const auto end = std::upper_bound(stage.begin(), stage.end(), stage[begin]) - stage.begin();
    make_even(owners.begin() + static_cast<std::ptrdiff_t>(begin), owners.begin() + end, problem.workers);
    begin = static_cast<size_t>(end);
  }
}

std::vector<Owners> plain_assignments(const AssignmentProblem& problem) {
  return {assign_window(problem), assign_random(problem)};
}

std::vector<Owners> good_assignments(const AssignmentProblem& problem, RandomBits& random) {
  const int n = problem.workers;
  const int p = problem.owners;
  std::vector<Owners> result = {greedy(problem, problem.flops, 0, random),
                                greedy(problem, problem.bytes, 0, random),
                                greedy(problem, combined_weights(problem), 2, random)};
  const std::vector<int> heaviest_first = by_weight(problem.bytes);
  // Search for the smaller of the base set and its complement: it is as evenly spread and cheaper to find.
  const auto shifts = cyclic_shifts(spread_base_set(n, std::min(p, n - p), random), n);
  result.push_back(deal(p <= n - p ? shifts : complements(shifts, n), heaviest_first));
  const auto hyperplanes = affine_hyperplanes(n);
  if (2 * p == n && !hyperplanes.empty()) result.push_back(deal(hyperplanes, heaviest_first));
  return result;
}

std::vector<Owners> whole_assignments(const AssignmentProblem& problem, RandomBits& random) {
  if (problem.depth.stage.empty()) return {};
  std::vector<Owners> result = {in_turn(problem), in_order_of_depth(problem, random)};
  // Pairs of complementary sets, one after the other.
  const auto hyperplanes = affine_hyperplanes(problem.workers);
  if (2 * problem.owners == problem.workers && !hyperplanes.empty()) {
    std::vector<int> groups(problem.flops.size());
    std::iota(groups.begin(), groups.end(), 0);
    result.push_back(deal(hyperplanes, groups));
  }
  return result;
}

}  // namespace sdp
