#include "data/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>

#include "data/random.h"
#include "subnet/random_bits.h"

namespace sdp {

namespace {

/// A bijection of 0..size-1: the place in the order of one epoch -> data-set index, computed without a table,
/// which would take gigabytes for a large set of tokens: a Feistel network over the smallest power of 4 that
/// is not below the set's size, applied again while the result is outside the set (Black, Rogaway, "Ciphers
/// with Arbitrary Finite Domains", CT-RSA 2002, the cycle-walking and generalized-Feistel ciphers). The round
/// keys are the stream `epoch` of RandomPurpose::kShuffle.
int64_t index_in_epoch(uint64_t size, uint64_t seed, int64_t epoch, int64_t place) {
  constexpr int kRounds = 8;
  const int half_bits = std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);  // of a position
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  std::array<uint64_t, kRounds> round_keys;
  CounterRandom random(seed, RandomPurpose::kShuffle, static_cast<uint64_t>(epoch));
  for (uint64_t& key : round_keys)
    key = random.next();
  auto value = static_cast<uint64_t>(place);
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;
    for (const uint64_t key : round_keys) {
      const uint64_t next = left ^ (scrambled(right + key) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits | right;
  } while (value >= size);  // fewer than four iterations on average: the set fills a quarter of the domain
  return static_cast<int64_t>(value);
}

}  // namespace

Sampler::Sampler(int64_t dataset_size, uint64_t seed) : dataset_size_(dataset_size), seed_(seed) {
  if (dataset_size < 1) throw std::logic_error("Sampler: the data set is empty");
}

int64_t Sampler::index(int64_t position) const {
  if (position < 0) throw std::logic_error("Sampler: negative position");
  return index_in_epoch(static_cast<uint64_t>(dataset_size_), seed_, position / dataset_size_,
                        position % dataset_size_);
}

}  // namespace sdp
