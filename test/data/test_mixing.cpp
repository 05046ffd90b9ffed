#include <algorithm>
#include <cmath>

#include "catch.h"
#include "data/augment.h"
#include "data/random.h"

using namespace sdp;

namespace {

constexpr ImageShape kShape{.channels = 2, .height = 8, .width = 12};

/// Pixel i of image b is 1000 * b + i, its label 10 * b.
Batch batch_of(size_t size) {
  Batch batch{.image_shape = kShape};
  for (size_t b = 0; b < size; ++b) {
    batch.labels.push_back(static_cast<int64_t>(10 * b));
    for (int64_t i = 0; i < kShape.numel(); ++i)
      batch.images.push_back(static_cast<float>(1000 * static_cast<int64_t>(b) + i));
  }
  return batch;
}

/// The pixel in row y and column x of the batch's image b.
std::vector<double> sorted_draws(double alpha, size_t size) {
  CounterRandom random(17, RandomPurpose::kMix, 0);
  std::vector<double> draws(size);
  for (double& draw : draws)
    draw = random.symmetric_beta(alpha);
  std::sort(draws.begin(), draws.end());
  return draws;
}

}  // namespace

TEST_CASE("symmetric_beta has the moments of Beta(alpha, alpha)", "[data]") {
  constexpr size_t kDraws = 50'000;
  for (const double alpha : {0.01, 0.1, 0.2, 0.4, 0.8, 1.0, 1.5, 5.0, 40.0}) {
    double sum = 0;
    double sum_of_squares = 0;
    double sum_of_fourths = 0;
    for (const double draw : sorted_draws(alpha, kDraws)) {
      REQUIRE(draw >= 0);
      REQUIRE(draw <= 1);
      sum += draw - 0.5;
      sum_of_squares += (draw - 0.5) * (draw - 0.5);
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
  CHECK_THROWS_AS(random.symmetric_beta(0), std::logic_error);
  CHECK_THROWS_AS(random.symmetric_beta(-1), std::logic_error);
  CHECK_THROWS_AS(random.symmetric_beta(std::nan("")), std::logic_error);
}

TEST_CASE("without mixup and cutmix a batch stays as it is", "[data]") {
  Batch batch = batch_of(3);
  mix_batch(batch, {}, 1, 0);
  CHECK(batch == batch_of(3));
}

TEST_CASE("a single image is mixed with itself", "[data]") {
  Batch batch = batch_of(1);
  mix_batch(batch, {.mixup_alpha = 1}, 1, 0);
  for (size_t i = 0; i < batch.images.size(); ++i)
    CHECK(batch.images[i] == Approx(batch_of(1).images[i]));
  CHECK(batch.mixed_labels == batch.labels);
}
