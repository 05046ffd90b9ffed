#include "data/sampler.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "data/random.h"
#include "subnet/random_bits.h"

namespace sdp {

EpochOrder::EpochOrder(int64_t size, uint64_t seed, int64_t epoch)
    : size_(static_cast<uint64_t>(size)),
      half_bits_(std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2)) {
  CounterRandom random(seed, RandomPurpose::kShuffle, static_cast<uint64_t>(epoch));
  for (uint64_t& key : round_keys_)
    key = random.next();
}

int64_t EpochOrder::index(int64_t place) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(place);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (const uint64_t key : round_keys_) {
      const uint64_t next = left ^ (scrambled(right + key) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (
      value >=
      size_);  // fewer than four iterations on average, as the set fills at least a quarter of the domain
  return static_cast<int64_t>(value);
}

Sampler::Sampler(int64_t dataset_size, uint64_t seed) : dataset_size_(dataset_size), seed_(seed) {
  if (dataset_size < 1) throw std::logic_error("Sampler: the data set is empty");
}

int64_t Sampler::index(int64_t position) const {
  if (position < 0) throw std::logic_error("Sampler: negative position");
  return EpochOrder(dataset_size_, seed_, position / dataset_size_).index(position % dataset_size_);
}

}  // namespace sdp
