#include <array>

#include "catch.h"
#include "data/augment.h"
#include "data/crops.h"
#include "data/image_array.h"
#include "fixtures.h"
#include "formats/image.h"

using namespace sdp;
using namespace sdp::testing;

// Crops, flips and mixing are compared with torchvision by oracle.py; boxes, resized pixels and the
// evaluation crop by oracle_images.py.

TEST_CASE("the smallest scale is chosen at which the crop still has the requested size", "[data]") {
  for (const auto& [width, height, eighths] : std::vector<std::array<int64_t, 3>>{{224, 224, 8},
                                                                                  {100, 2000, 8},
                                                                                  {447, 900, 8},
                                                                                  {448, 900, 4},
                                                                                  {896, 895, 4},
                                                                                  {896, 900, 2},
                                                                                  {1792, 1792, 1}})
    CHECK(eighths_for(crop_of({.left = 5, .top = 6, .right = 5 + width, .bottom = 6 + height}), 224) ==
          eighths);
}

TEST_CASE("boxes, windows, spans and statistics that do not fit are refused", "[data]") {
  const std::string jpeg = flat_jpeg(16, 8, {1, 2, 3});
  const auto decode = [&](const Box& box, int eighths) {
    return open_jpeg(bytes_of(jpeg))->decode(box, eighths);
  };
  CHECK_THROWS_AS(decode({.left = 0, .top = 0, .right = 17, .bottom = 8}, 8), std::logic_error);
  CHECK_THROWS_AS(decode({.left = 0, .top = 0, .right = 16, .bottom = 8}, 4), std::logic_error);
  CHECK_THROWS_AS(decode({.left = 3, .top = 0, .right = 3, .bottom = 8}, 8), std::logic_error);
  CHECK_THROWS_AS(decode({.left = 0, .top = 0, .right = 1, .bottom = 1}, 9), std::logic_error);

  const Pixels pixels = decode({.left = 0, .top = 0, .right = 16, .bottom = 8}, 8);
  std::vector<uint8_t> chw(3 * 4 * 4);
  const auto resize = [&](const Window& window, int64_t size) { resize_bilinear(pixels, window, size, chw); };
  CHECK_NOTHROW(resize({.left = 0, .top = 0, .right = 16, .bottom = 8}, 4));
  CHECK_THROWS_AS(resize({.left = 0, .top = 0, .right = 16, .bottom = 8}, 5), std::logic_error);
  CHECK_THROWS_AS(resize({.left = 0, .top = 0, .right = 16.1, .bottom = 8}, 4), std::logic_error);
  CHECK_THROWS_AS(resize({.left = 3, .top = 0, .right = 3, .bottom = 8}, 4), std::logic_error);
  CHECK_THROWS_AS(center_crop(100, 100, 20, 21), std::logic_error);

  const PatternDataset dataset(3);
  const std::vector<uint8_t> image(static_cast<size_t>(dataset.shape().numel()));
  std::vector<float> small(image.size() - 1);
  CHECK_THROWS_AS(ImageTransform(dataset.shape(), dataset.normalization()).normalize(image, small),
                  std::logic_error);
  CHECK_THROWS_AS(ImageTransform({.channels = 1, .height = 6, .width = 5}, dataset.normalization()),
                  std::logic_error);
  CHECK_THROWS_AS(
      ArrayDataset({.shape = {1, 2, 2}, .num_classes = 3, .pixels = {1, 2, 3, 4}, .labels = {2, 0}}),
      std::logic_error);
}
