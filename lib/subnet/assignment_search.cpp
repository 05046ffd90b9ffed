#include "subnet/assignment_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <tuple>

namespace sdp {
namespace {

/// Sum of the fourth powers of the eigenvalues of n K - m 1 1^T, where m is the sum of K divided by n. This
/// removes the even part of K; of the rest, the largest eigenvalue counts most. Below 2^63 for n <= 16 and 64
/// groups.
int64_t fourth_powers(const std::vector<int64_t>& k, int n) {
  const int64_t even_part = (std::accumulate(k.begin(), k.end(), int64_t{0}) + n / 2) / n;
  std::array<int64_t, size_t{kSmallWorkers} * kSmallWorkers> rest;
  for (size_t i = 0; i < k.size(); ++i)
    rest[i] = n * k[i] - even_part;
  int64_t sum = 0;  // of the squared entries of rest^2
  for (std::ptrdiff_t row = 0; row < n; ++row) {
    for (std::ptrdiff_t column = 0; column <= row; ++column) {
      const auto begin = rest.begin() + row * n;
      const int64_t entry = std::inner_product(begin, begin + n, rest.begin() + column * n, int64_t{0});
      sum += (row == column ? 1 : 2) * entry * entry;
    }
  }
  return sum;
}

bool heavier(const AssignmentCost& a, const AssignmentCost& b) {
  return std::tie(a.shortfall, a.uneven_flops, a.uneven_bytes) >
         std::tie(b.shortfall, b.uneven_flops, b.uneven_bytes);
}

}  // namespace

SearchLoads::SearchLoads(const AssignmentProblem& problem) : workers(problem.workers), depth(problem.depth) {
  const auto scale = [](const std::vector<double>& loads, double fixed, std::vector<int64_t>& scaled) {
    const double total = std::accumulate(loads.begin(), loads.end(), fixed);
    const double factor = total > 0 ? 0x1p52 / total : 0;
    for (const double load : loads)
      scaled.push_back(std::llround(load * factor));
    return std::llround(fixed * factor);
  };
  flops_fixed = scale(problem.flops, problem.flops_fixed, flops);
  bytes_fixed = scale(problem.bytes, problem.bytes_fixed, bytes);
}

AssignmentSearch::AssignmentSearch(const SearchLoads& loads, const Owners& owners, RandomBits& random)
    : loads_(&loads),
      random_(&random),
      n_(loads.workers),
      groups_(static_cast<int>(owners.size())),
      small_(n_ <= kSmallWorkers && groups_ <= kSmallGroups),
      order_(owners.size() * n_),
      position_(owners.size() * n_),
      wholeness_(loads.depth, n_, owners),
      flops_(n_, loads.flops_fixed),
      bytes_(n_, loads.bytes_fixed),
      shared_(static_cast<size_t>(n_) * n_, 0) {
  for (int group = 0; group < groups_; ++group) {
    const std::vector<int>& set = owners[group];
    p_.push_back(static_cast<int>(set.size()));
    int owned = 0;
    int others = p_.back();
    for (int worker = 0; worker < n_; ++worker) {
      const bool is_owner = std::binary_search(set.begin(), set.end(), worker);
      const int place = is_owner ? owned++ : others++;
      workers_of(group)[place] = worker;
      position(group, worker) = place;
    }
    for (int worker : set) {
      flops_[worker] += loads.flops[group];
      bytes_[worker] += loads.bytes[group];
      for (int other : set)
        ++shared_[static_cast<size_t>(worker) * n_ + other];
    }
  }
  const std::vector<int>& stage = loads.depth.stage;
  stage_of_.assign(groups_, {0, groups_});
  for (size_t group = 0; group < stage.size(); ++group) {
    const auto [begin, end] = std::equal_range(stage.begin(), stage.end(), stage[group]);
    stage_of_[group] = {static_cast<int>(begin - stage.begin()), static_cast<int>(end - stage.begin())};
  }
  for (int64_t count : shared_)
    squares_ += count * count;
}

void AssignmentSearch::change_co_ownership(const Replacement& made) {
  const auto& [group, in, out] = made;
  const int* list = workers_of(group);
  const int leaving = list[out];
  const int joining = list[in];
  int64_t* shared_leaving = &shared_[static_cast<size_t>(leaving) * n_];
  int64_t* shared_joining = &shared_[static_cast<size_t>(joining) * n_];
  int64_t change = 1 - 2 * shared_leaving[leaving]-- + 1 + 2 * shared_joining[joining]++;
  for (int place = 0; place < p_[group]; ++place) {
    if (place == in) continue;
    const int other = list[place];
    // (k-1)^2 - k^2 and (k+1)^2 - k^2, each twice because the matrix is symmetric.
    change += 2 * (1 - 2 * shared_leaving[other]-- + 1 + 2 * shared_joining[other]++);
    --shared_[static_cast<size_t>(other) * n_ + leaving];
    ++shared_[static_cast<size_t>(other) * n_ + joining];
  }
  squares_ += change;
}

void AssignmentSearch::exchange_places(const Replacement& replacement) {
  const auto& [group, in, out] = replacement;
  int* list = workers_of(group);
  const int leaving = list[in];
  const int joining = list[out];
  flops_[leaving] -= loads_->flops[group];
  bytes_[leaving] -= loads_->bytes[group];
  flops_[joining] += loads_->flops[group];
  bytes_[joining] += loads_->bytes[group];
  wholeness_.remove(group, leaving);
  wholeness_.add(group, joining);
  list[in] = joining;
  list[out] = leaving;
  position(group, joining) = in;
  position(group, leaving) = out;
}

void AssignmentSearch::replace(int group, int worker, int other) {
  pending_.push_back({group, position(group, worker), position(group, other)});
  exchange_places(pending_.back());
}

void AssignmentSearch::undo(std::vector<Replacement>& replacements, bool co_ownership) {
  for (; !replacements.empty(); replacements.pop_back()) {
    exchange_places(replacements.back());
    if (co_ownership) change_co_ownership(replacements.back());
  }
}

AssignmentCost AssignmentSearch::cost_of_loads(const EvenLoads& even) const {
  const int64_t flops = *std::max_element(flops_.begin(), flops_.end());
  const int64_t bytes = *std::max_element(bytes_.begin(), bytes_.end());
  return {.shortfall = wholeness_.shortfall(),
          .uneven_flops = std::max(even.flops, flops),
          .uneven_bytes = std::max(even.bytes, bytes),
          .largest_bytes = bytes,
          .largest_flops = flops};
}

AssignmentCost AssignmentSearch::cost(const EvenLoads& even) const {
  AssignmentCost result = cost_of_loads(even);
  result.concentration = concentration();
  return result;
}

int64_t AssignmentSearch::concentration() const {
  return small_ ? fourth_powers(shared_, n_) : squares_;
}

Owners AssignmentSearch::owners() const {
  Owners result;
  for (int group = 0; group < groups_; ++group) {
    result.emplace_back(workers_of(group), workers_of(group) + p_[group]);
    std::sort(result.back().begin(), result.back().end());
  }
  return result;
}

/// The worker with the largest FLOPs or, at random, with the largest bytes. Moves that do not involve this
/// worker cannot lower the maximum.
int AssignmentSearch::most_loaded_worker() const {
  const auto& loads = random_->below(2) == 0 ? flops_ : bytes_;
  return static_cast<int>(std::max_element(loads.begin(), loads.end()) - loads.begin());
}

/// A random group of the range that the worker owns, or any of them if a few draws find none.
int AssignmentSearch::random_group_of(int worker, std::pair<int, int> range) {
  const auto [begin, end] = range;
  int group = begin + random_->below(end - begin);
  for (int draw = 0; draw < 8 && !owns(worker, group); ++draw)
    group = begin + random_->below(end - begin);
  return group;
}

/// A replacement. If it would make a stage less even, an exchange instead.
void AssignmentSearch::propose() {
  if (random_->below(2) == 0) return propose_exchange();
  const int busy = most_loaded_worker();
  const int group = random_group_of(busy, {0, groups_});
  if (p_[group] == n_) return;
  const int leaving = owns(busy, group) ? busy : workers_of(group)[random_->below(p_[group])];
  const int joining = workers_of(group)[p_[group] + random_->below(n_ - p_[group])];
  if (!loads_->depth.stage.empty() &&
      wholeness_.in_stage_of(group, leaving) <= wholeness_.in_stage_of(group, joining))
    return propose_exchange();
  replace(group, leaving, joining);
}

/// Mostly within a stage, whose numbers of groups then stay as they are.
void AssignmentSearch::propose_exchange() {
  const int leaving = random_->below(2) == 0 ? random_->below(n_) : most_loaded_worker();
  const int group = random_group_of(leaving, {0, groups_});
  if (!owns(leaving, group) || p_[group] == n_) return;
  const int joining = workers_of(group)[p_[group] + random_->below(n_ - p_[group])];
  const bool anywhere = random_->below(4) == 0;
  const int partner = random_group_of(joining, anywhere ? std::pair(0, groups_) : stage_of_[group]);
  if (!owns(joining, partner) || owns(leaving, partner)) return;
  replace(group, leaving, joining);
  replace(partner, joining, leaving);
}

void AssignmentSearch::run(int64_t moves, int history, const EvenLoads& even) {
  AssignmentCost current = cost(even);
  AssignmentCost best = current;
  std::vector<AssignmentCost> earlier(history, current);
  std::vector<Replacement> since_best;
  for (int64_t move = 0; move < moves; ++move) {
    pending_.clear();
    propose();
    AssignmentCost& reference = earlier[move % history];
    if (accept(current, reference, even)) {
      since_best.insert(since_best.end(), pending_.begin(), pending_.end());
      if (current < best) {
        best = current;
        since_best.clear();
      }
    }
    reference = std::min(reference, current);
  }
  undo(since_best);
}

/// Keeps the pending move and sets `current` to its cost, or undoes the move.
bool AssignmentSearch::accept(AssignmentCost& current, const AssignmentCost& reference,
                              const EvenLoads& even) {
  AssignmentCost proposed = cost_of_loads(even);
  // Most moves are rejected by their loads, before the more expensive co-ownership is computed.
  if (heavier(proposed, current) && heavier(proposed, reference)) {
    undo(pending_, /*co_ownership=*/false);
    return false;
  }
  for (const Replacement& made : pending_)
    change_co_ownership(made);
  proposed.concentration = concentration();
  if (proposed > current && proposed > reference) {
    undo(pending_);
    return false;
  }
  current = proposed;
  return true;
}

void AssignmentSearch::perturb(int times) {
  for (int i = 0; i < times; ++i) {
    pending_.clear();
    propose();
    for (const Replacement& made : pending_)
      change_co_ownership(made);
  }
}

}  // namespace sdp
