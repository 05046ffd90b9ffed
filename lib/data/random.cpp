#include "data/random.h"

#include <cmath>
#include <limits>
#include <numbers>
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

double CounterRandom::symmetric_beta(double alpha) {
  if (!(alpha > 0)) throw std::logic_error("CounterRandom::symmetric_beta: alpha is not positive");
  const double log_x = log_gamma_variate(alpha);
  const double log_y = log_gamma_variate(alpha);
  return 1 / (1 + std::exp(log_y - log_x));
}

double CounterRandom::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double CounterRandom::log_gamma_variate(double shape) {
  if (shape < 1) {
    const double log_of_larger = log_gamma_variate(shape + 1);
    return log_of_larger + std::log(1 - uniform()) / shape;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double log_v = 3 * std::log(root);
    if (std::log(1 - uniform()) < 0.5 * x * x + d - d * std::exp(log_v) + d * log_v)
      return std::log(d) + log_v;
  }
}

}  // namespace sdp
