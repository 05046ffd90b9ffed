#include "subnet/assignment_starts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace sdp {
namespace {

/// Counts how often each difference and each sum of two elements occurs in a set of residues modulo n, which
/// is changed one element at a time.
class Differences {
 public:
  Differences(const std::vector<int>& set, int workers)
      : n_(workers), has_(n_, false), count_(n_, 0), sums_(n_, 0), crossed_(n_) {
    for (int element : set)
      insert(element);
  }

  bool has(int element) const { return has_[element]; }
  void insert(int element) { change(element, 1); }
  void remove(int element) { change(element, -1); }

  /// Sum over d != 0 of (number of ordered pairs with difference d)^2.
  int64_t unevenness() const {
    int64_t sum = 0;
    for (int64_t count : count_)
      sum += count * count;
    return sum;
  }

  /// By element that is not in the set: the unevenness after adding it. Adding x increases the counts of x -
  /// b and of b - x by one for every b in the set; each square grows by twice its count plus one, and by two
  /// more where x - b = b' - x.
  std::vector<int64_t> unevenness_with_each() {
    std::vector<int> twice(count_);  // two copies, so that negative differences need no modulo
    twice.insert(twice.end(), count_.begin(), count_.end());
    std::ranges::fill(crossed_, 0);
    int64_t elements = 0;
    for (int b = 0; b < n_; ++b) {
      if (!has_[b]) continue;
      ++elements;
      const int* shifted = twice.data() + n_ - b;
      for (int x = 0; x < n_; ++x)
        crossed_[x] += shifted[x];
    }
    const int64_t now = unevenness();
    std::vector<int64_t> result(n_);
    for (int x = 0; x < n_; ++x)
      result[x] = now + 4 * int64_t{crossed_[x]} + 2 * elements + 2 * int64_t{sums_[2 * x % n_]};
    return result;
  }

 private:
  void change(int element, int by) {
    if (by < 0) has_[element] = false;
    for (int other = 0; other < n_; ++other) {
      if (!has_[other]) continue;
      count_[(element - other + n_) % n_] += by;
      count_[(other - element + n_) % n_] += by;
      sums_[(element + other) % n_] += 2 * by;
    }
    sums_[2 * element % n_] += by;
    if (by > 0) has_[element] = true;
  }

  int n_;
  std::vector<bool> has_;
  std::vector<int> count_;    ///< by difference d != 0: number of ordered pairs
  std::vector<int> sums_;     ///< by sum: number of ordered pairs, including pairs of an element with itself
  std::vector<int> crossed_;  ///< by x: sum of count_[x - b] over all b in the set
};

/// Exchanges one element at a time as long as this makes the differences more even.
std::vector<int> descend(std::vector<int> set, int workers, int64_t& unevenness) {
  Differences differences(set, workers);
  unevenness = differences.unevenness();
  for (bool improved = true; improved;) {
    improved = false;
    for (int& element : set) {
      differences.remove(element);
      const std::vector<int64_t> with = differences.unevenness_with_each();
      for (int candidate = 0; candidate < workers; ++candidate) {
        if (differences.has(candidate) || with[candidate] >= unevenness) continue;
        element = candidate;
        unevenness = with[candidate];
        improved = true;
      }
      differences.insert(element);
    }
  }
  std::ranges::sort(set);
  return set;
}

/// Group numbers, the heaviest group first.
std::vector<int> by_weight(const std::vector<double>& weights) {
  std::vector<int> groups(weights.size());
  std::iota(groups.begin(), groups.end(), 0);
  std::ranges::stable_sort(groups, [&](int a, int b) { return weights[a] > weights[b]; });
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
    std::ranges::sort(order);
    for (int i = 0; i < problem.owners; ++i) {
      owners[group].push_back(order[i].second);
      loads[order[i].second] += weights[group];
    }
    std::ranges::sort(owners[group]);
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
      return std::ranges::binary_search(owned, from) && !std::ranges::binary_search(owned, to);
    });
    *std::ranges::find(set, from) = to;
    std::ranges::sort(set);
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
    std::ranges::sort(order);
    for (int i = 0; i < problem.owners; ++i) {
      const int worker = order[i].back();
      owners[group].push_back(worker);
      ++in_stage[worker];
      last_block[worker] = depth.block[group];
    }
    std::ranges::sort(owners[group]);
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
    std::ranges::sort(set);
  }
  return result;
}

}  // namespace

Owners affine_hyperplanes(int workers) {
  if (workers < 2 || !std::has_single_bit(static_cast<unsigned>(workers))) return {};
  // A class is a non-zero linear form x -> <a, x>. The unit vectors come first, so that the first m classes
  // separate all workers.
  std::vector<unsigned> forms(workers - 1);
  std::iota(forms.begin(), forms.end(), 1U);
  std::stable_partition(forms.begin(), forms.end(), [](unsigned a) { return std::has_single_bit(a); });
  Owners sets;
  for (unsigned form : forms) {
    std::vector<int> halves[2];
    for (int worker = 0; worker < workers; ++worker)
      halves[std::popcount(form & static_cast<unsigned>(worker)) % 2].push_back(worker);
    sets.insert(sets.end(), {halves[0], halves[1]});
  }
  return sets;
}

Owners cyclic_shifts(const std::vector<int>& base, int workers) {
  Owners sets;
  for (int shift = 0; shift < workers; ++shift) {
    std::vector<int> set = base;
    for (int& worker : set)
      worker = (worker + shift) % workers;
    std::ranges::sort(set);
    sets.push_back(std::move(set));
  }
  return sets;
}

std::vector<int> spread_base_set(int workers, int owners, RandomBits& random) {
  // Each round of a descent takes about n p^3 steps.
  const int64_t cost = int64_t{workers} * owners * owners * owners;
  const int starts = static_cast<int>(std::clamp<int64_t>(2'000'000 / cost, 1, 50));
  std::vector<int> best;
  int64_t best_unevenness = 0;
  for (int start = 0; start < starts; ++start) {
    int64_t unevenness = 0;
    std::vector<int> set = descend(random_owners(workers, owners, random), workers, unevenness);
    if (best.empty() || unevenness < best_unevenness) {
      best = std::move(set);
      best_unevenness = unevenness;
    }
  }
  return best;
}

Owners complements(const Owners& sets, int workers) {
  Owners result;
  for (const std::vector<int>& set : sets) {
    std::vector<int> others;
    for (int worker = 0; worker < workers; ++worker)
      if (!std::ranges::binary_search(set, worker)) others.push_back(worker);
    result.push_back(std::move(others));
  }
  return result;
}

std::vector<int> random_owners(int workers, int owners, RandomBits& random) {
  std::vector<int> all(workers);
  std::iota(all.begin(), all.end(), 0);
  for (int i = 0; i < owners; ++i)
    std::swap(all[i], all[i + random.below(workers - i)]);
  all.resize(owners);
  std::ranges::sort(all);
  return all;
}

void make_stages_even(Owners& owners, const AssignmentProblem& problem) {
  const std::vector<int>& stage = problem.depth.stage;
  for (size_t begin = 0; begin < stage.size();) {
    const auto end = std::ranges::upper_bound(stage, stage[begin]) - stage.begin();
    make_even(owners.begin() + static_cast<std::ptrdiff_t>(begin), owners.begin() + end, problem.workers);
    begin = static_cast<size_t>(end);
  }
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
