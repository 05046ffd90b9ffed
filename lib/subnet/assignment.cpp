#include "subnet/assignment.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "subnet/assignment_search.h"
#include "subnet/assignment_starts.h"
#include "subnet/random_bits.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

void check(const AssignmentProblem& problem) {
  const size_t groups = problem.flops.size();
  const GroupDepth& depth = problem.depth;
  if (problem.workers < 1 || (problem.owners.size() != groups && depth.quotas.empty()) ||
      !std::ranges::all_of(problem.owners, [&](int p) { return p >= 1 && p <= problem.workers; }))
    throw std::logic_error("assignment: the numbers of owners must be in 1..workers, one for each group");
  if (problem.bytes.size() != groups)
    throw std::logic_error("assignment: flops and bytes must have the same size");
  const auto valid = [](double load) { return std::isfinite(load) && load >= 0; };
  if (!std::ranges::all_of(problem.flops, valid) || !std::ranges::all_of(problem.bytes, valid) ||
      !valid(problem.flops_fixed) || !valid(problem.bytes_fixed))
    throw std::logic_error("assignment: loads must be finite and non-negative");
  for (const std::vector<int>& numbers : {depth.stage, depth.block})
    if (!numbers.empty() &&
        (numbers.size() != groups || !std::ranges::is_sorted(numbers) || numbers.front() < 0))
      throw std::logic_error("assignment: stages and blocks must be ascending, one for each group");
}

/// How the fixed effort is spent, in moves.
struct Effort {
  int64_t total;
  int64_t run;  ///< moves of one descent
  int history;

  Effort(const AssignmentProblem& problem, const Owners& owners) {
    const int64_t n = problem.workers;
    int64_t most_owners = 0;
    for (const std::vector<int>& set : owners)
      most_owners = std::max<int64_t>(most_owners, std::ssize(set));
    // With many workers, loads and lambda2 soon are close to their bounds. Few unequal groups need the
    // search.
    const int64_t elementary_steps = n <= kSmallWorkers ? 400'000'000 : 250'000'000;
    const int64_t small = n <= kSmallWorkers ? n * n * n / 4 : 0;
    const int64_t steps_a_move = 250 + 3 * n + 12 * most_owners + small;
    const int64_t size = static_cast<int64_t>(problem.flops.size()) * n;
    total = std::min(size * 10'000, elementary_steps / steps_a_move);
    run = std::clamp<int64_t>(size * 60, std::min<int64_t>(total / 32, 2'000), total / 32);
    history = static_cast<int>(std::max<int64_t>(1, run / 40));
  }
};

/// The search behind assign_balanced. It settles one objective after another.
class BalancedSearch {
 public:
  BalancedSearch(const AssignmentProblem& problem, const std::vector<Owners>& starts, RandomBits& random)
      : random_(random), loads_(problem), effort_(problem, starts.front()) {
    for (const Owners& owners : starts)
      starts_.emplace_back(loads_, owners, random_);
  }
  // Not copyable: the searches point into this object.
  BalancedSearch(const BalancedSearch&) = delete;
  BalancedSearch& operator=(const BalancedSearch&) = delete;

  Owners run() {
    settle(0);
    const double even_flops = loads_.depth.block.empty() ? kEvenFlopsOfSlices : kEvenFlops;
    even_.flops = std::llround(even_flops * static_cast<double>(best_->cost.largest_flops));
    settle(effort_.total / 3);
    const auto lowest_bytes = static_cast<double>(best_->cost.largest_bytes);
    even_.bytes = std::llround(kEvenBytes * lowest_bytes);
    settle(effort_.total / 3);
    const Found lean = *best_;
    even_.bytes = std::llround(kEvenBytesForMixing * lowest_bytes);
    settle(effort_.total / 3);
    const double more_bytes =
        static_cast<double>(best_->cost.largest_bytes - lean.cost.largest_bytes) / lowest_bytes;
    const double lambda2_saved = lambda2_of(lean) - lambda2_of(*best_);
    return (lambda2_saved > 2 * more_bytes ? *best_ : lean).search.owners();
  }

 private:
  struct Found {
    AssignmentSearch search;
    AssignmentCost cost;
    std::optional<double> lambda2 = {};  ///< computed when it decides
  };
  static constexpr double kSame = 1e-9;     // smaller differences may be rounding errors
  static constexpr int kManyWorkers = 128;  // for these lambda2 takes longer than the search

  double lambda2_of(const Found& found) const {
    return found.lambda2.value_or(lambda2(found.search.co_ownership(), loads_.workers));
  }

  /// Whether `found` is better than the best so far, by lambda2 itself instead of the search's proxy.
  bool is_better(Found& found) {
    const auto loads = [](const AssignmentCost& cost) {
      return std::tie(cost.shortfall, cost.uneven_flops, cost.uneven_bytes);
    };
    if (loads(found.cost) != loads(best_->cost)) return loads(found.cost) < loads(best_->cost);
    if (loads_.workers > kManyWorkers) return found.cost < best_->cost;
    found.lambda2 = lambda2_of(found);
    best_->lambda2 = lambda2_of(*best_);
    if (std::abs(*found.lambda2 - *best_->lambda2) > kSame) return *found.lambda2 < *best_->lambda2;
    return std::tie(found.cost.largest_bytes, found.cost.largest_flops) <
           std::tie(best_->cost.largest_bytes, best_->cost.largest_flops);
  }

  void offer(const AssignmentSearch& search) {
    Found found{search, search.cost(even_)};
    if (!best_ || is_better(found)) best_ = std::move(found);
  }

  /// Descends from every start, and then for this many moves from changed copies of the best.
  void settle(int64_t moves) {
    if (best_) best_->cost = best_->search.cost(even_);
    for (const AssignmentSearch& start : starts_) {
      offer(start);
      AssignmentSearch search = start;
      search.run(effort_.run, effort_.history, even_);
      offer(search);
    }
    for (int64_t done = 0; done < moves; done += effort_.run) {
      AssignmentSearch search = best_->search;
      search.perturb(2 + random_.below(6));
      search.run(effort_.run, effort_.history, even_);
      offer(search);
    }
  }

  RandomBits& random_;
  SearchLoads loads_;
  Effort effort_;
  EvenLoads even_;
  std::vector<AssignmentSearch> starts_;
  std::optional<Found> best_;
};

}  // namespace

Owners assign_window(const AssignmentProblem& problem) {
  check(problem);
  Owners owners(problem.flops.size());
  const int n = problem.workers;
  for (size_t group = 0; group < owners.size(); ++group)
    for (int worker = 0; worker < n; ++worker)
      if ((worker + n - static_cast<int>(group % n)) % n < problem.owners[group])
        owners[group].push_back(worker);
  return owners;
}

Owners assign_random(const AssignmentProblem& problem) {
  check(problem);
  RandomBits random(problem.seed);
  Owners owners;
  for (const int p : problem.owners)
    owners.push_back(random_owners(problem.workers, p, random));
  return owners;
}

Owners assign_balanced(const AssignmentProblem& problem) {
  check(problem);
  if (problem.flops.empty()) return {};
  // A random stream of its own, as assign_random takes that of the seed.
  RandomBits random(problem.seed ^ 0x62616c616e636564);
  Owners first = construction(problem, random);
  int64_t pairs = 0;  // of owners, which a search counts
  bool is_dense = true;
  for (const std::vector<int>& set : first) {
    pairs += std::ssize(set) * std::ssize(set);
    is_dense = is_dense && std::ssize(set) == problem.workers;
  }
  constexpr int64_t kMostPairs = 100'000'000;
  if (is_dense || pairs > kMostPairs) return first;
  return BalancedSearch(problem, constructions(problem, std::move(first), random), random).run();
}

}  // namespace sdp
