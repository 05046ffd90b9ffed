#include <cmath>

#include "catch.h"
#include "data/crops.h"
#include "data/random.h"
#include "fixtures.h"
#include "formats/image.h"

using namespace sdp;
using namespace sdp::testing;

// The boxes, the resized pixels and the evaluation crop are compared with torchvision by oracle_images.py.

TEST_CASE("the smallest scale is chosen at which the crop still has the requested size", "[data]") {
  const auto eighths = [](int64_t width, int64_t height) {
    return eighths_for(crop_of({.left = 5, .top = 6, .right = 5 + width, .bottom = 6 + height}), 224);
  };
  CHECK(eighths(224, 224) == 8);
  CHECK(eighths(100, 2000) == 8);
  CHECK(eighths(447, 900) == 8);
  CHECK(eighths(448, 900) == 4);
  CHECK(eighths(896, 895) == 4);
  CHECK(eighths(896, 900) == 2);
  CHECK(eighths(1792, 1792) == 1);
}

TEST_CASE("a crop of an image of one color has that color, at every scale", "[data]") {
  const std::string jpeg = flat_jpeg(900, 1000, {200, 100, 50});
  for (const int eighths : {8, 4, 2, 1}) {
    std::vector<uint8_t> chw(3 * 20 * 20);
    const auto image = open_jpeg(bytes_of(jpeg));
    decode_crop(*image, center_crop(900, 1000, 25, 20), eighths, 20, chw);
    for (size_t i = 0; i < chw.size(); ++i)
      REQUIRE(std::abs(chw[i] - std::vector{200, 100, 50}[i / 400]) <= 2);
  }
}

TEST_CASE("windows and spans out of range are refused", "[data]") {
  const std::string jpeg = flat_jpeg(16, 8, {1, 2, 3});
  const Pixels pixels = open_jpeg(bytes_of(jpeg))->decode({.left = 0, .top = 0, .right = 16, .bottom = 8});
  std::vector<uint8_t> chw(3 * 4 * 4);
  const auto resize = [&](const Window& window, int64_t size) { resize_bilinear(pixels, window, size, chw); };
  CHECK_NOTHROW(resize({.left = 0, .top = 0, .right = 16, .bottom = 8}, 4));
  CHECK_THROWS_AS(resize({.left = 0, .top = 0, .right = 16, .bottom = 8}, 5), std::logic_error);
  CHECK_THROWS_AS(resize({.left = 0, .top = 0, .right = 16.1, .bottom = 8}, 4), std::logic_error);
  CHECK_THROWS_AS(resize({.left = 3, .top = 0, .right = 3, .bottom = 8}, 4), std::logic_error);
  CHECK_THROWS_AS(center_crop(100, 100, 20, 21), std::logic_error);
}
