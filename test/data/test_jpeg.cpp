#include "catch.h"
#include "data/random.h"
#include "fixtures.h"
#include "formats/image.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

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

/// Random boxes of an image at one scale have the pixels of the whole image.
void check_boxes(const std::string& jpeg, int eighths) {
  const int64_t width = scaled_length(kWidth, eighths);
  const int64_t height = scaled_length(kHeight, eighths);
  const auto whole = top_rows(jpeg, width, height, eighths);
  CounterRandom random(2, RandomPurpose::kCrop, static_cast<uint64_t>(eighths));
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.below(static_cast<uint64_t>(n))); };
  for (int draw = 0; draw < 25; ++draw) {
    const int64_t left = below(width), top = below(height);
    const int64_t right = left + 1 + below(width - left), bottom = top + 1 + below(height - top);
    const Box box{.left = left, .top = top, .right = right, .bottom = bottom};
    INFO(eighths << "/8, box " << left << " " << top << " " << right << " " << bottom);
    REQUIRE(decoded(bytes_of(jpeg), box, eighths) == cut_out(whole, width, box));
  }
}

}  // namespace

TEST_CASE("decoding a box gives the same pixels as decoding the whole image", "[data]") {
  const JpegOptions progressive{.across = 2, .down = 2, .progressive = true};
  std::vector<std::string> images;
  for (const JpegOptions& options : std::vector<JpegOptions>{{},
                                                             {.across = 2},
                                                             {.down = 2},
                                                             {.across = 2, .down = 2},
                                                             {.across = 4, .down = 1},
                                                             {.across = 4, .down = 2},
                                                             {.odd_sampling = true},
                                                             progressive})
    images.push_back(noise_jpeg(kWidth, kHeight, 3, options));
  images.push_back(noise_jpeg(kWidth, kHeight, 1, {}));
  images.push_back(noise_jpeg(kWidth, kHeight, 4, {}));
  images.push_back(noise_jpeg(kWidth, kHeight, 4, {.across = 2, .down = 2, .ycck = true}));
  // Without its last scans: the first one has only the mean of each block, which libjpeg would smooth.
  const std::string whole = noise_jpeg(kWidth, kHeight, 3, progressive);
  images.push_back(whole.substr(0, whole.find("\xff\xda", whole.find("\xff\xda") + 2)) + "\xff\xd9");
  for (size_t image = 0; image < images.size(); ++image) {
    INFO("image " << image);
    REQUIRE(error_of(images[image]).empty());
    for (int eighths = 1; eighths <= 8; ++eighths)
      check_boxes(images[image], eighths);
  }
}

TEST_CASE("CMYK is converted as Pillow does it: c * k / 255 of the stored values", "[data]") {
  const std::string jpeg = flat_jpeg(8, 8, {200, 100, 0, 128});
  CHECK(top_rows(jpeg, 1, 1) == std::vector<uint8_t>{100, 50, 0});
}

TEST_CASE("warnings about missing or damaged pixels are errors, others are not", "[data]") {
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

TEST_CASE("files that are not JPEG are named, with advice", "[data]") {
  CHECK_SAYS(error_of("GIF89a"), "a GIF", "JPEG", "Convert it");
  CHECK_SAYS(error_of("<html>"), "cannot be decoded as a JPEG", "0x3c 0x68");
  std::string two_components = flat_jpeg(8, 8, {77});
  const size_t frame = two_components.find("\xff\xc0");
  // Length 14, 8 bits, 8 x 8, 2 components, of which the second repeats the first under another name.
  two_components.replace(
      frame + 2, 11, std::string("\0\x0e\x08\0\x08\0\x08\x02\x01\x11\0", 11) + std::string("\x02\x11\0", 3));
  CHECK_SAYS(error_of(two_components), "2 color components");
  std::string huge = flat_jpeg(8, 8, {77});
  huge.replace(huge.find("\xff\xc0") + 5, 4, "\xff\xdc\xff\xdc");
  CHECK_SAYS(error_of(huge), "65500 x 65500 pixels");
}
