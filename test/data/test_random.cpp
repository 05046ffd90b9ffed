#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "catch.h"
#include "data/random.h"
#include "data/sampler.h"

using namespace sdp;

// Streams, orders, uniform() and below() for small numbers are compared with plain Python by oracle.py.

TEST_CASE("philox4x32 gives the known answer of Random123's kat_vectors", "[data]") {
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("below(n) keeps large ranges unbiased, and refuses 0", "[data]") {
  // Without rejection, multiply-high of n = 3 * 2^62 gives every third value twice as often.
  constexpr uint64_t n = uint64_t{3} << 62;
  constexpr int kDraws = 30'000;
  std::array<int, 3> count{};
  CounterRandom random(4, RandomPurpose::kCrop, 0);
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = random.below(n);
    REQUIRE(value < n);
    ++count[value % 3];
  }
  for (const int c : count)
    CHECK(std::abs(c - kDraws / 3) < 500);
  CHECK_THROWS_AS(random.below(0), std::logic_error);
}

TEST_CASE("symmetric_beta has the moments of Beta(alpha, alpha), and refuses values that are not positive",
          "[data]") {
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
  CounterRandom random(1, RandomPurpose::kMix, 0);
  for (int i = 0; i < 100; ++i) {
    const double either = random.symmetric_beta(1e-9);
    CHECK((either < 1e-6 || either > 1 - 1e-6));
    CHECK(random.symmetric_beta(1e12) == Approx(0.5).epsilon(1e-4));
  }
  for (const double alpha : {0.0, -1.0, std::nan("")})
    CHECK_THROWS_AS(random.symmetric_beta(alpha), std::logic_error);
}

TEST_CASE("every epoch is a permutation, different for every epoch and seed", "[data]") {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 101}) {
    std::vector<std::vector<int64_t>> orders(7, std::vector<int64_t>(static_cast<size_t>(size)));
    std::iota(orders[0].begin(), orders[0].end(), int64_t{0});
    for (int64_t i = 0; i < 6 * size; ++i)  // an epoch of another seed, and five of one
      orders[static_cast<size_t>(1 + i / size)][static_cast<size_t>(i % size)] =
          i < size ? Sampler(size, 8).index(i) : Sampler(size, 7).index(i - size);
    for (size_t i = 0; i < orders.size(); ++i) {
      CHECK(std::is_permutation(orders[i].begin(), orders[i].end(), orders[0].begin()));
      for (size_t j = 0; size == 101 && j < i; ++j)
        CHECK(orders[i] != orders[j]);
    }
  }
  CHECK(Sampler(1, 0).index(1'000'000'000'000) == 0);
  CHECK_THROWS_AS(Sampler(1, 0).index(-1), std::logic_error);
  CHECK_THROWS_AS(Sampler(0, 0), std::logic_error);
}

TEST_CASE("every position of a step is used exactly once over all workers", "[data]") {
  for (const int64_t workers : {1, 3, 4})
    for (const int64_t replicas : {1, 2, 3})
      for (const int64_t accumulate : {1, 2, 5}) {
        const BatchGeometry geometry{workers, replicas, accumulate, 4};
        std::vector<int64_t> uses(static_cast<size_t>(2 * geometry.samples_per_step()));
        for (int64_t sample = 0; sample < geometry.samples_per_step(); ++sample)
          for (const int64_t step : {0, 1}) {
            const int64_t micro_batch = sample / 4 % accumulate, pass = sample / 4 / accumulate;
            ++uses.at(static_cast<size_t>(
                geometry.position(step, pass % workers, pass / workers, micro_batch, sample % 4)));
          }
        CHECK(uses == std::vector<int64_t>(uses.size(), 1));
      }
  // After 5 steps of 200 samples. Pass = 1 * 4 + 2 = 6; -200 + ((5 * 8 + 6) * 3 + 2) * 10 + 7.
  const BatchGeometry later{3, 2, 4, 10, /*first_position=*/-200};
  CHECK(later.position(5, 2, 1, 2, 7) == 1207);
}
