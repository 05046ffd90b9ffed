#include "data/sampler.h"

#include <numeric>
#include <stdexcept>
#include <utility>

#include "data/random.h"

namespace sdp {

namespace {

/// Fisher-Yates, from the back.
std::vector<int64_t> permutation_of_epoch(int64_t size, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  CounterRandom random(seed, RandomPurpose::kShuffle, static_cast<uint64_t>(epoch));
  for (size_t last = order.size() - 1; last > 0; --last)
    std::swap(order[last], order[random.below(last + 1)]);
  return order;
}

}  // namespace

Sampler::Sampler(int64_t dataset_size, uint64_t seed) : dataset_size_(dataset_size), seed_(seed) {
  if (dataset_size < 1) throw std::logic_error("Sampler: the data set is empty");
}

int64_t Sampler::index(int64_t position) const {
  if (position < 0) throw std::logic_error("Sampler: negative position");
  const int64_t epoch = position / dataset_size_;
  const std::lock_guard lock(mutex_);
  Permutation& permutation = cache_[static_cast<size_t>(epoch % 2)];
  if (permutation.epoch != epoch) permutation = {epoch, permutation_of_epoch(dataset_size_, seed_, epoch)};
  return permutation.order[static_cast<size_t>(position % dataset_size_)];
}

}  // namespace sdp
