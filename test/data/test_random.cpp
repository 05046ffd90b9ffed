#include <array>
#include <cmath>

#include "catch.h"
#include "data/random.h"

using namespace sdp;

// Streams, uniform() and below() for small numbers are compared with plain Python by oracle.py.

TEST_CASE("philox4x32 gives the known answers of Random123's kat_vectors", "[data]") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("below(n) keeps large ranges unbiased, and refuses 0", "[data]") {
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
  CHECK_THROWS_AS(random.below(0), std::logic_error);
}

TEST_CASE("symmetric_beta has the moments of Beta(alpha, alpha)", "[data]") {
  constexpr int kDraws = 50'000;
  for (const double alpha : {0.01, 0.2, 1.0, 1.5, 40.0}) {
    CounterRandom random(17, RandomPurpose::kMix, 0);
    double sum = 0, sum_of_squares = 0, sum_of_fourths = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double draw = random.symmetric_beta(alpha);
      REQUIRE((draw >= 0 && draw <= 1));
      sum += draw - 0.5;
      sum_of_squares += std::pow(draw - 0.5, 2);
      sum_of_fourths += std::pow(draw - 0.5, 4);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    const double fourth = variance * variance * 3 * (2 * alpha + 1) / (2 * alpha + 3);  // central
    INFO(alpha);
    CHECK(std::abs(sum / kDraws) < 5 * std::sqrt(variance / kDraws));
    CHECK(std::abs(sum_of_squares / kDraws - variance) <
          5 * std::sqrt((fourth - variance * variance) / kDraws));
    CHECK(sum_of_fourths / kDraws == Approx(fourth).epsilon(0.06));
  }
}

TEST_CASE("symmetric_beta is finite for extreme alpha, and refuses values that are not positive", "[data]") {
  CounterRandom random(1, RandomPurpose::kMix, 0);
  for (int i = 0; i < 100; ++i) {
    const double either = random.symmetric_beta(1e-9);
    CHECK((either < 1e-6 || either > 1 - 1e-6));
    CHECK(random.symmetric_beta(1e12) == Approx(0.5).epsilon(1e-4));
  }
  for (const double alpha : {0.0, -1.0, std::nan("")})
    CHECK_THROWS_AS(random.symmetric_beta(alpha), std::logic_error);
}
