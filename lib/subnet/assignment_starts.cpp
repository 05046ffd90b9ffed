#include "subnet/assignment_starts.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

namespace sdp {
namespace {

std::vector<int> shuffled_workers(int workers, RandomBits& random) {
  std::vector<int> order(workers);
  std::iota(order.begin(), order.end(), 0);
  for (int i = workers - 1; i > 0; --i)
    std::swap(order[i], order[random.below(i + 1)]);
  return order;
}

/// Deals the workers like a deck of cards, which is shuffled anew for every stage and whenever all have been
/// dealt. In every stage the workers own numbers of groups that differ by at most one.
Owners dealt(const AssignmentProblem& problem, RandomBits& random) {
  const std::vector<int>& stage = problem.depth.stage;
  Owners owners(problem.flops.size());
  std::vector<int> deck;  // the last is dealt next
  for (size_t group = 0; group < owners.size(); ++group) {
    if (!stage.empty() && group > 0 && stage[group] != stage[group - 1]) deck.clear();
    std::vector<int>& set = owners[group];
    while (std::ssize(set) < problem.owners[group]) {
      if (deck.empty()) {
        deck = shuffled_workers(problem.workers, random);
        // Those that the group has come last.
        std::stable_partition(deck.begin(), deck.end(),
                              [&](int k) { return std::ranges::find(set, k) != set.end(); });
      }
      set.push_back(deck.back());
      deck.pop_back();
    }
  }
  return owners;
}

/// Every worker owns an arc of as many groups of each stage as its quota says. The arcs are laid end to end
/// around the stage, so that the groups' numbers of owners differ by at most one.
Owners arcs(const AssignmentProblem& problem, RandomBits& random) {
  const std::vector<int>& stage = problem.depth.stage;
  Owners owners(stage.size());
  for (size_t begin = 0; begin < stage.size();) {
    const auto end = static_cast<size_t>(std::ranges::upper_bound(stage, stage[begin]) - stage.begin());
    size_t next = 0;
    for (const int worker : shuffled_workers(problem.workers, random))
      for (int i = 0; i < problem.depth.quotas[stage[begin]][worker]; ++i)
        owners[begin + next++ % (end - begin)].push_back(worker);
    begin = end;
  }
  return owners;
}

/// The classes of affine_hyperplanes in turn.
Owners parallel_classes(const AssignmentProblem& problem) {
  const Owners sets = affine_hyperplanes(problem.workers);
  const auto is_half = [&](int owners) { return 2 * owners == problem.workers; };
  if (sets.empty() || !std::ranges::all_of(problem.owners, is_half)) return {};
  Owners owners;
  for (size_t group = 0; group < problem.flops.size(); ++group)
    owners.push_back(sets[group % sets.size()]);
  return owners;
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
  for (const unsigned form : forms) {
    std::vector<int> halves[2];
    for (int worker = 0; worker < workers; ++worker)
      halves[std::popcount(form & static_cast<unsigned>(worker)) % 2].push_back(worker);
    sets.insert(sets.end(), {halves[0], halves[1]});
  }
  return sets;
}

std::vector<int> random_owners(int workers, int owners, RandomBits& random) {
  std::vector<int> all = shuffled_workers(workers, random);
  all.resize(owners);
  std::ranges::sort(all);
  return all;
}

Owners construction(const AssignmentProblem& problem, RandomBits& random) {
  Owners owners = problem.depth.quotas.empty() ? dealt(problem, random) : arcs(problem, random);
  for (std::vector<int>& set : owners)
    std::ranges::sort(set);
  return owners;
}

std::vector<Owners> constructions(const AssignmentProblem& problem, Owners first, RandomBits& random) {
  constexpr size_t kStarts = 5;
  std::vector<Owners> result = {std::move(first)};
  while (result.size() < kStarts)
    result.push_back(construction(problem, random));
  const Owners classes = problem.depth.quotas.empty() ? parallel_classes(problem) : Owners();
  if (!classes.empty()) result.push_back(classes);
  return result;
}

}  // namespace sdp
