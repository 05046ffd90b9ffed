#include <cmath>
#include <stdexcept>
#include <vector>

#include "catch.h"
#include "data/random.h"

using namespace sdp;

TEST_CASE("philox4x32 gives the known answers of Random123's kat_vectors", "[data]") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("below(n) is uniform in 0..n-1", "[data]") {
  constexpr int kDraws = 90'000;
  for (const uint64_t n : {1, 2, 9, 10}) {
    std::vector<int> count(n);
    CounterRandom random(3, RandomPurpose::kCrop, n);
    for (int i = 0; i < kDraws; ++i)
      ++count.at(random.below(n));
    // Six standard deviations of a binomial count.
    const double p = 1.0 / static_cast<double>(n);
    for (const int c : count)
      CHECK(std::abs(c - kDraws * p) <= 6 * std::sqrt(kDraws * p * (1 - p)));
  }
}

TEST_CASE("below(n) keeps large ranges unbiased", "[data]") {
  // Without rejection, multiply-high of n = 3 * 2^62 gives every third value twice as often, which the
  // residues modulo 3 show.
  const uint64_t n = uint64_t{3} << 62;
  std::array<int, 3> count{};
  CounterRandom random(4, RandomPurpose::kCrop, 0);
  constexpr int kDraws = 30'000;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = random.below(n);
    REQUIRE(value < n);
    ++count[value % 3];
  }
  for (const int c : count)
    CHECK(std::abs(c - kDraws / 3) < 500);
}

TEST_CASE("below(0) is refused, uniform() stays in [0, 1)", "[data]") {
  CounterRandom random(5, RandomPurpose::kCrop, 0);
  CHECK_THROWS_AS(random.below(0), std::logic_error);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double value = random.uniform();
    REQUIRE(value >= 0);
    REQUIRE(value < 1);
    sum += value;
  }
  CHECK(sum / 10'000 == Approx(0.5).margin(0.02));
}
