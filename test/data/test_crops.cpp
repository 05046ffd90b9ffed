#include <cmath>
#include <numeric>

#include "catch.h"
#include "data/formats/crops.h"
#include "data/formats/jpeg.h"
#include "data/random.h"
#include "fixtures.h"

using namespace sdp;
using namespace sdp::testing;

// The boxes, the resized pixels and the evaluation crop are compared with torchvision by oracle_images.py.

namespace {

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

double share_of(const Box& box, int64_t width, int64_t height) {
  return static_cast<double>(box.area()) / static_cast<double>(width * height);
}

}  // namespace

TEST_CASE("random boxes lie in the image, with areas of 8% to 100% and ratios of 3/4 to 4/3", "[data]") {
  constexpr int kDraws = 4000;
  double shares = 0;
  double logarithms = 0;
  double least = 1;
  double largest = 0;
  for (int64_t position = 0; position < kDraws; ++position) {
    const Box box = random_resized_crop(1000, 1000, 3, position);
    REQUIRE((box.left >= 0 && box.top >= 0 && box.right <= 1000 && box.bottom <= 1000));
    const double ratio = static_cast<double>(box.width()) / static_cast<double>(box.height());
    CHECK((ratio > 0.745 && ratio < 1.342));
    const double share = share_of(box, 1000, 1000);
    shares += share;
    logarithms += std::log(ratio);
    least = std::min(least, share);
    largest = std::max(largest, share);
  }
  CHECK((least > 0.079 && least < 0.09));
  CHECK((largest > 0.9 && largest <= 1));
  // A box of relative area s fits at ratios s..1/s: the mean of s with the density min(1, -ln(s) / ln(4/3)).
  CHECK(shares / kDraws == Approx(0.478).margin(0.02));
  CHECK(std::abs(logarithms / kDraws) < 0.02);
}

TEST_CASE("a box is a function of seed, position and size", "[data]") {
  CHECK(random_resized_crop(500, 375, 1, 7) == random_resized_crop(500, 375, 1, 7));
  CHECK(!(random_resized_crop(500, 375, 1, 7) == random_resized_crop(500, 375, 1, 8)));
  CHECK(!(random_resized_crop(500, 375, 1, 7) == random_resized_crop(500, 375, 2, 7)));
}

TEST_CASE("if no box fits, the largest centered one with an allowed ratio is taken", "[data]") {
  // At 1 : 100 a box of 8% of the area is at least 2.45 pixels per pixel of width.
  CHECK(random_resized_crop(1000, 10, 1, 0) == Box{.left = 493, .top = 0, .right = 506, .bottom = 10});
  CHECK(random_resized_crop(12, 1200, 1, 0) == Box{.left = 0, .top = 592, .right = 12, .bottom = 608});
  CHECK(random_resized_crop(1, 1, 1, 0) == Box{.left = 0, .top = 0, .right = 1, .bottom = 1});
}

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
    JpegImage image(bytes_of(jpeg));
    decode_crop(image, center_crop(900, 1000, 25, 20), eighths, 20, chw);
    for (size_t i = 0; i < chw.size(); ++i)
      REQUIRE(std::abs(chw[i] - std::vector{200, 100, 50}[i / 400]) <= 2);
  }
}

TEST_CASE("windows and spans out of range are refused", "[data]") {
  const std::string jpeg = flat_jpeg(16, 8, {1, 2, 3});
  const Pixels pixels = JpegImage(bytes_of(jpeg)).decode({.left = 0, .top = 0, .right = 16, .bottom = 8});
  std::vector<uint8_t> chw(3 * 4 * 4);
  const auto resize = [&](const Window& window, int64_t size) { resize_bilinear(pixels, window, size, chw); };
  CHECK_NOTHROW(resize({.left = 0, .top = 0, .right = 16, .bottom = 8}, 4));
  CHECK_THROWS_AS(resize({.left = 0, .top = 0, .right = 16, .bottom = 8}, 5), std::logic_error);
  CHECK_THROWS_AS(resize({.left = 0, .top = 0, .right = 16.1, .bottom = 8}, 4), std::logic_error);
  CHECK_THROWS_AS(resize({.left = 3, .top = 0, .right = 3, .bottom = 8}, 4), std::logic_error);
  CHECK_THROWS_AS(center_crop(100, 100, 20, 21), std::logic_error);
}
