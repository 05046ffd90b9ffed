#include "subnet/designs.h"

#include <algorithm>
#include <bit>
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
    std::fill(crossed_.begin(), crossed_.end(), 0);
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
  std::sort(set.begin(), set.end());
  return set;
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
    std::sort(set.begin(), set.end());
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
      if (!std::binary_search(set.begin(), set.end(), worker)) others.push_back(worker);
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
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace sdp
