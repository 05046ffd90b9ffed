#include <array>

#include "catch.h"
#include "data/augment.h"
#include "data/crops.h"
#include "data/image_array.h"
#include "data/random.h"
#include "fixtures.h"

using namespace sdp;
using namespace sdp::testing;

// Crops, flips and mixing are compared with torchvision by oracle.py; boxes, resized pixels and the
// evaluation crop by oracle_images.py.

namespace {

constexpr int kWidth = 83;
constexpr int kHeight = 61;

std::string noise_jpeg(int width, int height, int components, const JpegOptions& options) {
  CounterRandom random(1, RandomPurpose::kShuffle, 0);
  std::vector<uint8_t> pixels;
  for (int i = 0; i < width * height * components; ++i)
    pixels.push_back(static_cast<uint8_t>(random.below(256)));
  return encode_jpeg(width, height, pixels, options);
}

std::string error_of(const std::string& jpeg) {
  return message_of<DataError>([&] { open_jpeg(bytes_of(jpeg))->decode_all(); });
}

std::vector<uint8_t> top_rows(const std::string& jpeg, int64_t width, int64_t rows, int eighths = 8) {
  return decoded(bytes_of(jpeg), {.left = 0, .top = 0, .right = width, .bottom = rows}, eighths);
}

}  // namespace

TEST_CASE("decoding a box gives the same pixels as decoding the whole image") {
  std::vector<std::string> images = {noise_jpeg(kWidth, kHeight, 1, {}), noise_jpeg(kWidth, kHeight, 4, {}),
                                     noise_jpeg(kWidth, kHeight, 4, {.across = 2, .down = 2, .ycck = true})};
  for (const auto& [across, down] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}})
    images.push_back(noise_jpeg(kWidth, kHeight, 3, {.across = across, .down = down}));
  images.push_back(noise_jpeg(kWidth, kHeight, 3, {.odd_sampling = true}));
  const std::string whole = noise_jpeg(kWidth, kHeight, 3, {.across = 2, .down = 2, .progressive = true});
  images.push_back(whole);
  // Without its last scans: the first one has only the mean of each block, which libjpeg would smooth.
  images.push_back(whole.substr(0, whole.find("\xff\xda", whole.find("\xff\xda") + 2)) + "\xff\xd9");
  CounterRandom random(2, RandomPurpose::kCrop, 0);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.below(static_cast<uint64_t>(n))); };
  for (size_t image = 0; image < images.size(); ++image)
    for (int eighths = 1; eighths <= 8; ++eighths) {
      const int64_t width = scaled_length(kWidth, eighths), height = scaled_length(kHeight, eighths);
      const auto pixels = top_rows(images[image], width, height, eighths);
      for (int draw = 0; draw < 25; ++draw) {
        const int64_t left = below(width), top = below(height);
        const int64_t right = left + 1 + below(width - left), bottom = top + 1 + below(height - top);
        CAPTURE(image, eighths, left, top, right, bottom);
        const Box box{.left = left, .top = top, .right = right, .bottom = bottom};
        REQUIRE(decoded(bytes_of(images[image]), box, eighths) == cut_out(pixels, width, box));
      }
    }
}

TEST_CASE("warnings about missing or damaged pixels are errors, others are not") {
  const std::string good = noise_jpeg(64, 64, 3, {});
  REQUIRE(error_of(good).empty());
  // Three bytes that belong to nothing, before the marker that ends the image.
  CHECK(error_of(good.substr(0, good.size() - 2) + "abc" + good.substr(good.size() - 2)).empty());
  const std::string half = good.substr(0, good.size() / 2);
  CHECK_SAYS(error_of(half), "cannot be decoded as a JPEG", "Premature end");
  CHECK_SAYS(error_of(half + "\xff\xd9"), "premature end of data segment");
  // A crop does not need the data below it.
  CHECK(top_rows(half, 64, 8) == top_rows(good, 64, 8));
  CHECK_THROWS_AS(top_rows(half, 64, 64), DataError);
}

TEST_CASE("files that are not JPEG are named, with advice") {
  std::string two_components = flat_jpeg(8, 8, {77});
  CHECK_SAYS(error_of(""), "empty");
  CHECK_SAYS(message_of<DataError>([&] { open_image(bytes_of("\x1f\x8b\x08" + two_components)); }), "gzip");
  CHECK_SAYS(error_of("GIF89a"), "a GIF", "JPEG", "Convert it");
  CHECK_SAYS(error_of("<html>"), "cannot be decoded as a JPEG", "0x3c 0x68");
  const size_t frame = two_components.find("\xff\xc0");
  // Length 14, 8 bits, 8 x 8, 2 components, of which the second repeats the first under another name.
  two_components.replace(
      frame + 2, 11, std::string("\0\x0e\x08\0\x08\0\x08\x02\x01\x11\0", 11) + std::string("\x02\x11\0", 3));
  CHECK_SAYS(error_of(two_components), "2 color components");
  std::string huge = flat_jpeg(8, 8, {77});
  huge.replace(huge.find("\xff\xc0") + 5, 4, "\xff\xdc\xff\xdc");
  CHECK_SAYS(error_of(huge), "65500 x 65500 pixels");
}

TEST_CASE("the smallest scale is chosen at which the crop still has the requested size") {
  using Case = std::array<int64_t, 3>;
  for (const auto& [width, height, eighths] :
       {Case{224, 224, 8}, Case{100, 2000, 8}, Case{447, 900, 8}, Case{448, 900, 4}, Case{896, 895, 4},
        Case{896, 900, 2}, Case{1792, 1792, 1}})
    CHECK(eighths_for(crop_of({.left = 5, .top = 6, .right = 5 + width, .bottom = 6 + height}), 224) ==
          eighths);
}

TEST_CASE("boxes and windows that do not fit are refused") {
  const std::string jpeg = flat_jpeg(16, 8, {1, 2, 3});
  using Refused = std::pair<Box, int>;
  for (const auto& [box, eighths] : {Refused{{0, 0, 17, 8}, 8}, Refused{{0, 0, 16, 8}, 4},
                                     Refused{{3, 0, 3, 8}, 8}, Refused{{0, 0, 1, 1}, 9}})
    CHECK_THROWS_AS(decoded(bytes_of(jpeg), box, eighths), std::logic_error);
  const Pixels pixels = open_jpeg(bytes_of(jpeg))->decode_all();
  std::vector<uint8_t> chw(3 * 4 * 4);
  CHECK_NOTHROW(resize_bilinear(pixels, {0, 0, 16, 8}, 4, chw));
  CHECK_THROWS_AS(resize_bilinear(pixels, {0, 0, 16, 8}, 5, chw), std::logic_error);
  for (const Window& window : {Window{0, 0, 16.1, 8}, Window{3, 0, 3, 8}})
    CHECK_THROWS_AS(resize_bilinear(pixels, window, 4, chw), std::logic_error);
  CHECK_THROWS_AS(center_crop(100, 100, 20, 21), std::logic_error);
}
