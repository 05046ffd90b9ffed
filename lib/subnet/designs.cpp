#include "subnet/designs.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>

namespace sdp {
namespace {

/// Sum over d of (number of ordered pairs of the set with difference d)^2.
int64_t unevenness_of_differences(const OwnerSet& set, int workers) {
  std::vector<int64_t> count(workers, 0);
  for (int a : set)
    for (int b : set)
      if (a != b) ++count[(a - b + workers) % workers];
  return std::inner_product(count.begin(), count.end(), count.begin(), int64_t{0});
}

/// Exchanges one element at a time as long as that makes the differences more even.
OwnerSet descend(OwnerSet set, int workers, int64_t& unevenness) {
  unevenness = unevenness_of_differences(set, workers);
  for (bool improved = true; improved;) {
    improved = false;
    for (int& element : set) {
      for (int candidate = 0; candidate < workers; ++candidate) {
        if (std::find(set.begin(), set.end(), candidate) != set.end()) continue;
        const int previous = std::exchange(element, candidate);
        const int64_t changed = unevenness_of_differences(set, workers);
        if (changed < unevenness) {
          unevenness = changed;
          improved = true;
        } else {
          element = previous;
        }
      }
    }
  }
  std::sort(set.begin(), set.end());
  return set;
}

}  // namespace

std::vector<OwnerSet> affine_hyperplanes(int workers) {
  if (workers < 2 || !std::has_single_bit(static_cast<unsigned>(workers))) return {};
  // A class is a non-zero linear form x -> <a, x>; unit vectors first, so that m classes separate all
  // workers.
  std::vector<unsigned> forms(workers - 1);
  std::iota(forms.begin(), forms.end(), 1U);
  std::stable_partition(forms.begin(), forms.end(), [](unsigned a) { return std::has_single_bit(a); });
  std::vector<OwnerSet> sets;
  for (unsigned form : forms) {
    OwnerSet halves[2];
    for (int worker = 0; worker < workers; ++worker)
      halves[std::popcount(form & static_cast<unsigned>(worker)) % 2].push_back(worker);
    sets.insert(sets.end(), {halves[0], halves[1]});
  }
  return sets;
}

std::vector<OwnerSet> cyclic_shifts(const OwnerSet& base, int workers) {
  std::vector<OwnerSet> sets;
  for (int shift = 0; shift < workers; ++shift) {
    OwnerSet set = base;
    for (int& worker : set)
      worker = (worker + shift) % workers;
    std::sort(set.begin(), set.end());
    sets.push_back(std::move(set));
  }
  return sets;
}

OwnerSet spread_base_set(int workers, int owners, RandomBits& random) {
  // A descent costs about n p^3 steps each time around.
  const int64_t cost = int64_t{workers} * owners * owners * owners;
  const int starts = static_cast<int>(std::clamp<int64_t>(2'000'000 / cost, 1, 50));
  OwnerSet best;
  int64_t best_unevenness = 0;
  for (int start = 0; start < starts; ++start) {
    int64_t unevenness = 0;
    OwnerSet set = descend(random_owners(workers, owners, random), workers, unevenness);
    if (best.empty() || unevenness < best_unevenness) {
      best = std::move(set);
      best_unevenness = unevenness;
    }
  }
  return best;
}

std::vector<OwnerSet> complements(const std::vector<OwnerSet>& sets, int workers) {
  std::vector<OwnerSet> result;
  for (const OwnerSet& set : sets) {
    OwnerSet others;
    for (int worker = 0; worker < workers; ++worker)
      if (!std::binary_search(set.begin(), set.end(), worker)) others.push_back(worker);
    result.push_back(std::move(others));
  }
  return result;
}

OwnerSet random_owners(int workers, int owners, RandomBits& random) {
  OwnerSet all(workers);
  std::iota(all.begin(), all.end(), 0);
  for (int i = 0; i < owners; ++i)
    std::swap(all[i], all[i + random.below(workers - i)]);
  all.resize(owners);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace sdp
