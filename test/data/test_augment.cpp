#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "catch.h"
#include "data/pipeline/augment.h"
#include "fixtures.h"

using namespace sdp;
using sdp::testing::PatternDataset;

namespace {

constexpr int64_t kPad = 4;

/// Pads, cuts out at (top, left), mirrors and normalizes, one plain step after another, in double precision.
std::vector<double> reference(const std::vector<uint8_t>& chw, const PatternDataset& dataset, int64_t top,
                              int64_t left, bool flip) {
  const auto [channels, height, width] = dataset.shape();
  const int64_t padded_height = height + 2 * kPad;
  const int64_t padded_width = width + 2 * kPad;
  std::vector<double> out;
  for (int64_t c = 0; c < channels; ++c) {
    std::vector<double> padded(static_cast<size_t>(padded_height * padded_width), 0.0);
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        padded[static_cast<size_t>((y + kPad) * padded_width + x + kPad)] =
            chw[static_cast<size_t>((c * height + y) * width + x)];
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const int64_t column = flip ? width - 1 - x : x;
        const double pixel = padded[static_cast<size_t>((y + top) * padded_width + left + column)];
        const auto channel = static_cast<size_t>(c);
        out.push_back((pixel / 255 - dataset.normalization().mean[channel]) /
                      dataset.normalization().stddev[channel]);
      }
  }
  return out;
}

bool close(const std::vector<float>& actual, const std::vector<double>& expected) {
  return std::equal(actual.begin(), actual.end(), expected.begin(), expected.end(),
                    [](float a, double b) { return std::abs(a - b) < 1e-5; });
}

/// (top, left, flip) of the reference that gives `actual`; fails if there is none.
std::tuple<int64_t, int64_t, bool> find_choice(const std::vector<float>& actual,
                                               const std::vector<uint8_t>& chw,
                                               const PatternDataset& dataset) {
  for (int64_t top = 0; top <= 2 * kPad; ++top)
    for (int64_t left = 0; left <= 2 * kPad; ++left)
      for (const bool flip : {false, true})
        if (close(actual, reference(chw, dataset, top, left, flip))) return {top, left, flip};
  FAIL("no crop and flip of the image gives this output");
  return {};
}

struct Fixture {
  PatternDataset dataset{3};
  ImageTransform transform{dataset.shape(), dataset.normalization()};
  std::vector<uint8_t> image = std::vector<uint8_t>(static_cast<size_t>(dataset.shape().numel()));
  Fixture() { dataset.read(2, image); }

  std::vector<float> augment(const std::vector<Augmentation>& steps, uint64_t seed, int64_t position) const {
    std::vector<float> out(image.size());
    transform.augment(image, steps, seed, position, out);
    return out;
  }
};

}  // namespace

TEST_CASE("normalize is (x / 255 - mean) / stddev", "[data]") {
  const Fixture f;
  std::vector<float> out(f.image.size());
  f.transform.normalize(f.image, out);
  CHECK(close(out, reference(f.image, f.dataset, kPad, kPad, false)));
  CHECK(f.augment({}, 1, 17) == out);
}

TEST_CASE("crop and flip match the plain reference, with every choice about equally often", "[data]") {
  const Fixture f;
  constexpr int kDraws = 600;
  std::set<int64_t> tops;
  std::set<int64_t> lefts;
  int flips = 0;
  for (int64_t position = 0; position < kDraws; ++position) {
    const auto [top, left, flip] =
        find_choice(f.augment({Augmentation::kCrop, Augmentation::kFlip}, 1, position), f.image, f.dataset);
    tops.insert(top);
    lefts.insert(left);
    flips += flip;
  }
  CHECK(tops.size() == 9);
  CHECK(lefts.size() == 9);
  CHECK(std::abs(flips - kDraws / 2) < 75);  // 6 standard deviations
}

TEST_CASE("crop only never flips, flip only never moves, and neither changes the other's choice", "[data]") {
  const Fixture f;
  for (int64_t position = 0; position < 40; ++position) {
    const auto both =
        find_choice(f.augment({Augmentation::kFlip, Augmentation::kCrop}, 3, position), f.image, f.dataset);
    const auto crop = find_choice(f.augment({Augmentation::kCrop}, 3, position), f.image, f.dataset);
    const auto flip = find_choice(f.augment({Augmentation::kFlip}, 3, position), f.image, f.dataset);
    CHECK(crop == std::tuple(std::get<0>(both), std::get<1>(both), false));
    CHECK(flip == std::tuple(kPad, kPad, std::get<2>(both)));
  }
}

TEST_CASE("choices follow seed and position", "[data]") {
  const Fixture f;
  const std::vector<Augmentation> steps = {Augmentation::kCrop, Augmentation::kFlip};
  CHECK(f.augment(steps, 1, 5) == f.augment(steps, 1, 5));
  int differ_by_seed = 0;
  for (int64_t position = 0; position < 20; ++position)
    differ_by_seed += f.augment(steps, 1, position) != f.augment(steps, 2, position);
  CHECK(differ_by_seed > 15);
}

TEST_CASE("spans and statistics of the wrong size are refused", "[data]") {
  const Fixture f;
  std::vector<float> small(f.image.size() - 1);
  CHECK_THROWS_AS(f.transform.normalize(f.image, small), std::logic_error);
  CHECK_THROWS_AS(ImageTransform({.channels = 1, .height = 6, .width = 5}, f.dataset.normalization()),
                  std::logic_error);
}
