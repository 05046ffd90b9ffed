#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <set>

#include "catch.h"
#include "data/pipeline/augment.h"
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
float pixel(const Batch& batch, int64_t b, int64_t channel, int64_t y, int64_t x) {
  const int64_t at = ((b * kShape.channels + channel) * kShape.height + y) * kShape.width + x;
  return batch.images[static_cast<size_t>(at)];
}

std::vector<double> sorted_draws(double alpha, size_t size) {
  CounterRandom random(17, RandomPurpose::kMix, 0);
  std::vector<double> draws(size);
  for (double& draw : draws)
    draw = random.symmetric_beta(alpha);
  std::sort(draws.begin(), draws.end());
  return draws;
}

}  // namespace

TEST_CASE("symmetric_beta has the distribution function of Beta(alpha, alpha)", "[data]") {
  const std::vector<std::pair<double, std::function<double(double)>>> known = {
      {0.5, [](double x) { return 2 / std::numbers::pi * std::asin(std::sqrt(x)); }},  // arcsine
      {1.0, [](double x) { return x; }},                                               // uniform
      {2.0, [](double x) { return x * x * (3 - 2 * x); }},
  };
  constexpr size_t kDraws = 50'000;
  for (const auto& [alpha, distribution] : known) {
    const std::vector<double> draws = sorted_draws(alpha, kDraws);
    // Kolmogorov-Smirnov: the largest distance exceeds 2.2 / sqrt(n) with probability 1e-4.
    double distance = 0;
    for (size_t i = 0; i < kDraws; ++i) {
      const double expected = distribution(draws[i]);
      distance = std::max({distance, std::abs(expected - static_cast<double>(i) / kDraws),
                           std::abs(expected - static_cast<double>(i + 1) / kDraws)});
    }
    INFO(alpha);
    CHECK(distance < 2.2 / std::sqrt(kDraws));
  }
}

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

TEST_CASE("mixup is the weighted mean of each image and the previous one", "[data]") {
  const Batch plain = batch_of(4);
  std::set<double> shares;
  for (int64_t position = 0; position < 20; ++position) {
    Batch batch = plain;
    mix_batch(batch, {.mixup_alpha = 1}, 7, position);
    CHECK(batch.labels == plain.labels);
    CHECK(batch.mixed_labels == std::vector<int64_t>{30, 0, 10, 20});
    shares.insert(batch.mix);
    for (size_t i = 0; i < batch.images.size(); ++i) {
      const size_t numel = batch.images.size() / 4;
      const double partner = plain.images[(i + 3 * numel) % (4 * numel)];
      const double expected = batch.mix * plain.images[i] + (1 - batch.mix) * partner;
      REQUIRE(batch.images[i] == Approx(expected).margin(1e-3));
    }
  }
  CHECK(shares.size() == 20);
}

TEST_CASE("cutmix shows the previous image in a box and counts the pixels outside", "[data]") {
  const Batch plain = batch_of(3);
  int boxes_inside = 0;
  for (int64_t position = 0; position < 200; ++position) {
    Batch batch = plain;
    const ImageAugmentation augmentation{.cutmix_alpha = 1};
    mix_batch(batch, augmentation, 7, position);
    const std::optional<Mixing> mixing = draw_mixing(augmentation, kShape, 7, position);
    REQUIRE(mixing->box.has_value());
    const auto [left, top, right, bottom] = *mixing->box;
    REQUIRE((0 <= left && left <= right && right <= kShape.width));
    REQUIRE((0 <= top && top <= bottom && bottom <= kShape.height));
    CHECK(batch.mixed_labels == std::vector<int64_t>{20, 0, 10});
    int64_t own_pixels = 0;
    for (int64_t b = 0; b < 3; ++b)
      for (int64_t channel = 0; channel < kShape.channels; ++channel)
        for (int64_t y = 0; y < kShape.height; ++y)
          for (int64_t x = 0; x < kShape.width; ++x) {
            const bool in_box = x >= left && x < right && y >= top && y < bottom;
            own_pixels += !in_box;
            REQUIRE(pixel(batch, b, channel, y, x) == pixel(plain, in_box ? (b + 2) % 3 : b, channel, y, x));
          }
    CHECK(batch.mix == Approx(static_cast<double>(own_pixels) / static_cast<double>(3 * kShape.numel())));
    boxes_inside += batch.mix < 1 && left > 0 && top > 0 && right < kShape.width && bottom < kShape.height;
  }
  CHECK(boxes_inside > 10);
}

TEST_CASE("with both, each mixes about half of the batches", "[data]") {
  int mixups = 0;
  constexpr int kBatches = 2000;
  for (int64_t position = 0; position < kBatches; ++position) {
    mixups += !draw_mixing({.mixup_alpha = 0.2, .cutmix_alpha = 1}, kShape, 3, position)->box.has_value();
    CHECK(!draw_mixing({.mixup_alpha = 0.2}, kShape, 3, position)->box.has_value());
    CHECK(draw_mixing({.cutmix_alpha = 1}, kShape, 3, position)->box.has_value());
  }
  CHECK(std::abs(mixups - kBatches / 2) < 135);  // 6 standard deviations
}

TEST_CASE("the mixing of a batch depends on seed and position", "[data]") {
  const auto share = [](uint64_t seed, int64_t position) {
    return draw_mixing({.mixup_alpha = 0.2}, kShape, seed, position)->share;
  };
  CHECK(share(1, 5) == share(1, 5));
  CHECK(share(1, 5) != share(2, 5));
  CHECK(share(1, 5) != share(1, 6));
}

TEST_CASE("a single image is mixed with itself", "[data]") {
  Batch batch = batch_of(1);
  mix_batch(batch, {.mixup_alpha = 1}, 1, 0);
  for (size_t i = 0; i < batch.images.size(); ++i)
    CHECK(batch.images[i] == Approx(batch_of(1).images[i]));
  CHECK(batch.mixed_labels == batch.labels);
}
