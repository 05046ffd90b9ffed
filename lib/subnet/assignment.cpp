#include "subnet/assignment.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
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
  if (problem.workers < 1 || problem.owners < 1 || problem.owners > problem.workers)
    throw std::logic_error("assignment: the number of owners must be in 1..workers");
  if (problem.flops.size() != problem.bytes.size())
    throw std::logic_error("assignment: flops and bytes must have the same size");
  const auto valid = [](double load) { return std::isfinite(load) && load >= 0; };
  if (!std::ranges::all_of(problem.flops, valid) || !std::ranges::all_of(problem.bytes, valid) ||
      !valid(problem.flops_fixed) || !valid(problem.bytes_fixed))
    throw std::logic_error("assignment: loads must be finite and non-negative");
  for (const std::vector<int>& depth : {problem.depth.stage, problem.depth.block})
    if (depth.size() != problem.depth.stage.size() ||
        (!depth.empty() && depth.size() != problem.flops.size()) || !std::ranges::is_sorted(depth) ||
        (!depth.empty() && depth.front() < 0))
      throw std::logic_error("assignment: stages and blocks must be ascending, one for each group");
}

double max_over_mean(const std::vector<double>& group_loads, double fixed, const Owners& owners,
                     int workers) {
  std::vector<double> loads(workers, fixed);
  for (size_t group = 0; group < owners.size(); ++group)
    for (int worker : owners[group])
      loads[worker] += group_loads[group];
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  return total > 0 ? *std::ranges::max_element(loads) * workers / total : 1;
}

int64_t with_tolerance(int64_t load, double tolerance) {
  return load + std::llround(static_cast<double>(load) * tolerance);
}

/// How the fixed effort is spent, in moves.
struct Effort {
  int64_t total;
  int64_t run;  ///< moves of one descent
  int history;

  explicit Effort(const AssignmentProblem& problem) {
    const int64_t n = problem.workers;
    // With many workers, loads and lambda2 soon are close to their bounds. Few unequal groups need the
    // search.
    const int64_t elementary_steps = n <= kSmallWorkers ? 200'000'000 : 80'000'000;
    const int64_t small = n <= kSmallWorkers ? n * n * n / 4 : 0;
    const int64_t steps_a_move = 250 + 3 * n + 12 * int64_t{problem.owners} + small;
    const int64_t size = static_cast<int64_t>(problem.flops.size()) * n;
    total = std::min(size * 10'000, elementary_steps / steps_a_move);
    run = std::clamp<int64_t>(size * 60, std::min<int64_t>(total / 32, 2'000), total / 32);
    history = static_cast<int>(std::max<int64_t>(1, run / 40));
  }
};

/// The best assignment so far, judged by lambda2 itself instead of the search's proxy.
class Finalist {
 public:
  Finalist(const AssignmentSearch& first, int workers, const EvenLoads& even)
      : workers_(workers),
        even_(even),
        search_(first),
        cost_(first.cost(even)),
        co_ownership_(first.co_ownership()),
        lambda2_(lambda2(co_ownership_, workers)) {}

  void offer(const AssignmentSearch& search) {
    const AssignmentCost cost = search.cost(even_);
    const auto loads = std::tie(cost.shortfall, cost.uneven_flops, cost.uneven_bytes);
    const auto best_loads = std::tie(cost_.shortfall, cost_.uneven_flops, cost_.uneven_bytes);
    if (loads > best_loads) return;
    std::vector<double> co_ownership = search.co_ownership();
    const bool is_lighter = loads < best_loads;
    if (!is_lighter && is_surely_larger(co_ownership)) return;
    const double found = co_ownership == co_ownership_ ? lambda2_ : lambda2(co_ownership, workers_);
    if (!is_lighter && !better(found, cost)) return;
    search_ = search;
    cost_ = cost;
    co_ownership_ = std::move(co_ownership);
    lambda2_ = found;
  }

  const AssignmentSearch& search() const { return search_; }

 private:
  static constexpr double kSame = 1e-9;  // smaller differences may be rounding errors

  /// With many workers, a bound excludes most assignments that are no better, in a fraction of the time.
  bool is_surely_larger(const std::vector<double>& co_ownership) const {
    constexpr int kManyWorkers = 128;
    return workers_ >= kManyWorkers && lambda2_from_below(co_ownership, workers_) > lambda2_ + 2 * kSame;
  }

  bool better(double lambda2, const AssignmentCost& cost) const {
    if (std::abs(lambda2 - lambda2_) > kSame) return lambda2 < lambda2_;
    return std::tie(cost.largest_bytes, cost.largest_flops) <
           std::tie(cost_.largest_bytes, cost_.largest_flops);
  }

  int workers_;
  EvenLoads even_;
  AssignmentSearch search_;
  AssignmentCost cost_;
  std::vector<double> co_ownership_;
  double lambda2_ = 0;
};

/// The search behind assign_balanced: one stage settles each of the three objectives.
class BalancedSearch {
 public:
  explicit BalancedSearch(const AssignmentProblem& problem)
      : problem_(problem),
        // A separate random stream, because the random assignment is one of the starting points.
        random_(problem.seed ^ 0x62616c616e636564),
        loads_(problem),
        effort_(problem) {
    // They are hardly ever whole.
    if (problem.depth.stage.empty())
      for (const Owners& owners : {assign_window(problem), assign_random(problem)})
        plain_.push_back(start_from(owners));
    starts_ = plain_;
    for (const Owners& owners : good_assignments(problem, random_))
      starts_.push_back(start_from(owners));
    for (const Owners& owners : whole_assignments(problem, random_))
      starts_.push_back(start_from(owners));
  }
  // Not copyable: the searches point into this object.
  BalancedSearch(const BalancedSearch&) = delete;
  BalancedSearch& operator=(const BalancedSearch&) = delete;

  Owners run() {
    std::vector<AssignmentSearch> searches = starts_;
    find_even_flops(searches);
    find_even_bytes(searches);
    return find_smallest_lambda2(searches);
  }

 private:
  AssignmentSearch start_from(Owners owners) {
    make_stages_even(owners, problem_);
    return {loads_, owners, random_};
  }

  void descend(AssignmentSearch& search) { search.run(effort_.run, effort_.history, even_); }

  AssignmentSearch descent_near(const AssignmentSearch& search) {
    AssignmentSearch result = search;
    result.perturb(2 + random_.below(6));
    descend(result);
    return result;
  }

  void find_even_flops(std::vector<AssignmentSearch>& searches) {
    std::vector<AssignmentCost> costs;
    for (AssignmentSearch& search : searches) {
      descend(search);
      costs.push_back(search.cost({}));
    }
    const auto lowest = std::ranges::min_element(costs);
    even_.flops = with_tolerance(lowest->largest_flops, problem_.flops_tolerance);
  }

  void find_even_bytes(std::vector<AssignmentSearch>& searches) {
    for (AssignmentSearch& search : searches)
      descend(search);
    const auto lower = [&](const AssignmentSearch& a, const AssignmentSearch& b) {
      return a.cost(even_) < b.cost(even_);
    };
    AssignmentSearch best = *std::ranges::min_element(searches, lower);
    for (int64_t moves = 0; moves < effort_.total / 3; moves += effort_.run) {
      AssignmentSearch found = descent_near(best);
      if (lower(found, best)) best = std::move(found);
    }
    searches.push_back(best);
    even_.bytes = with_tolerance(best.cost({}).largest_bytes, problem_.bytes_tolerance);
    // The tolerance must not make the result worse than a plain assignment with equally even FLOPs.
    for (const AssignmentSearch& plain : plain_) {
      const AssignmentCost cost = plain.cost({});
      if (cost.largest_flops <= even_.flops) even_.bytes = std::min(even_.bytes, cost.largest_bytes);
    }
  }

  Owners find_smallest_lambda2(std::vector<AssignmentSearch>& searches) {
    Finalist best(starts_.front(), problem_.workers, even_);
    for (const AssignmentSearch& start : starts_)
      best.offer(start);
    searches.insert(searches.end(), starts_.begin(), starts_.end());
    for (AssignmentSearch& search : searches) {
      best.offer(search);
      descend(search);
      best.offer(search);
    }
    for (int64_t moves = 0; moves < effort_.total / 3; moves += effort_.run)
      best.offer(descent_near(best.search()));
    return best.search().owners();
  }

  const AssignmentProblem& problem_;
  RandomBits random_;
  SearchLoads loads_;
  Effort effort_;
  EvenLoads even_;
  std::vector<AssignmentSearch> plain_;  // the result must not be worse than these
  std::vector<AssignmentSearch> starts_;
};

}  // namespace

Owners assign_window(const AssignmentProblem& problem) {
  check(problem);
  Owners owners(problem.flops.size());
  for (size_t group = 0; group < owners.size(); ++group) {
    const int first = static_cast<int>(group % problem.workers);
    const int beyond = std::max(0, first + problem.owners - problem.workers);  // owners that wrap around to 0
    owners[group].resize(problem.owners);
    const auto middle = owners[group].begin() + beyond;
    std::iota(owners[group].begin(), middle, 0);
    std::iota(middle, owners[group].end(), first);
  }
  return owners;
}

Owners assign_random(const AssignmentProblem& problem) {
  check(problem);
  RandomBits random(problem.seed);
  Owners owners(problem.flops.size());
  for (std::vector<int>& set : owners)
    set = random_owners(problem.workers, problem.owners, random);
  return owners;
}

Owners assign_balanced(const AssignmentProblem& problem) {
  check(problem);
  if (problem.owners == problem.workers || problem.flops.empty()) return assign_window(problem);
  Owners lowest_memory = BalancedSearch(problem).run();
  if (problem.bytes_for_mixing <= problem.bytes_tolerance) return lowest_memory;
  AssignmentProblem roomy = problem;
  roomy.bytes_tolerance = problem.bytes_for_mixing;
  Owners better_mixed = BalancedSearch(roomy).run();
  const Balance lowest = balance_of(problem, lowest_memory);
  const Balance mixed = balance_of(problem, better_mixed);
  const double more_bytes = mixed.bytes_max_over_mean / lowest.bytes_max_over_mean - 1;
  return lowest.lambda2_by_unit - mixed.lambda2_by_unit > 2 * more_bytes ? better_mixed : lowest_memory;
}

Balance balance_of(const AssignmentProblem& problem, const Owners& owners) {
  check(problem);
  if (owners.size() != problem.flops.size())
    throw std::logic_error("balance_of: expected one owner set per group");
  const int n = problem.workers;
  const std::vector<double> ones(owners.size(), 1.0);
  return {.flops_max_over_mean = max_over_mean(problem.flops, problem.flops_fixed, owners, n),
          .bytes_max_over_mean = max_over_mean(problem.bytes, problem.bytes_fixed, owners, n),
          .lambda2_by_unit = lambda2(co_ownership(owners, ones, n), n)};
}

}  // namespace sdp
