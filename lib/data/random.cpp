#include "data/random.h"

#include <limits>
#include <stdexcept>

namespace sdp {

namespace {

constexpr uint32_t low(uint64_t value) {
  return static_cast<uint32_t>(value);
}
constexpr uint32_t high(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1), high(product0) ^ counter[3] ^ key[1],
               low(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

uint64_t CounterRandom::next() {
  if (has_second_half_) {
    has_second_half_ = false;
    return second_half_;
  }
  if (block_ > std::numeric_limits<uint32_t>::max())
    throw std::logic_error("CounterRandom: a stream of 2^33 numbers is used up");
  const auto words =
      philox4x32({low(block_), purpose_, low(stream_), high(stream_)}, {low(seed_), high(seed_)});
  ++block_;
  second_half_ = words[2] | uint64_t{words[3]} << 32;
  has_second_half_ = true;
  return words[0] | uint64_t{words[1]} << 32;
}

uint64_t CounterRandom::below(uint64_t n) {
  if (n == 0) throw std::logic_error("CounterRandom::below(0)");
  unsigned __int128 product = static_cast<unsigned __int128>(next()) * n;
  if (static_cast<uint64_t>(product) < n) {
    const uint64_t rejected = -n % n;  // 2^64 mod n
    while (static_cast<uint64_t>(product) < rejected)
      product = static_cast<unsigned __int128>(next()) * n;
  }
  return static_cast<uint64_t>(product >> 64);
}

double CounterRandom::uniform() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

}  // namespace sdp
