#include <algorithm>
#include <vector>

#include "catch.h"
#include "data/augment.h"
#include "fixtures.h"

using namespace sdp;
using sdp::testing::PatternDataset;

// Crops, flips and normalization together are compared with torchvision's by oracle.py.

TEST_CASE("crop and flip alone choose as they do together", "[data]") {
  const PatternDataset dataset(3);
  const ImageTransform transform(dataset.shape(), dataset.normalization());
  std::vector<uint8_t> image(static_cast<size_t>(dataset.shape().numel()));
  dataset.read(2, image);
  const auto augment = [&](const std::vector<Augmentation>& steps, int64_t position) {
    std::vector<float> out(image.size());
    transform.augment(image, steps, /*seed=*/3, position, out);
    return out;
  };
  const auto mirrored = [&](std::vector<float> chw) {
    for (auto row = chw.begin(); row != chw.end(); row += dataset.shape().width)
      std::reverse(row, row + dataset.shape().width);
    return chw;
  };
  std::vector<float> plain(image.size());
  transform.normalize(image, plain);
  CHECK(augment({}, 0) == plain);
  int flips = 0;
  for (int64_t position = 0; position < 40; ++position) {
    const std::vector<float> crop = augment({Augmentation::kCrop}, position);
    const std::vector<float> flip = augment({Augmentation::kFlip}, position);
    const bool flipped = flip != plain;
    CHECK(flip == (flipped ? mirrored(plain) : plain));
    CHECK(augment({Augmentation::kFlip, Augmentation::kCrop}, position) == (flipped ? mirrored(crop) : crop));
    flips += flipped;
  }
  CHECK((flips > 5 && flips < 35));
}

TEST_CASE("spans and statistics of the wrong size are refused", "[data]") {
  const PatternDataset dataset(3);
  const ImageTransform transform(dataset.shape(), dataset.normalization());
  const std::vector<uint8_t> image(static_cast<size_t>(dataset.shape().numel()));
  std::vector<float> small(image.size() - 1);
  CHECK_THROWS_AS(transform.normalize(image, small), std::logic_error);
  CHECK_THROWS_AS(ImageTransform({.channels = 1, .height = 6, .width = 5}, dataset.normalization()),
                  std::logic_error);
}
