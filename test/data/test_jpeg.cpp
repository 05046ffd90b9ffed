#include "catch.h"
#include "data/random.h"
#include "fixtures.h"
#include "formats/image.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

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

}  // namespace

TEST_CASE("decoding a box gives the same pixels as decoding the whole image", "[data]") {
  struct Kind {
    int components;
    JpegOptions options;
  };
  const std::vector<Kind> kinds = {{3, {}},
                                   {3, {.across = 2}},
                                   {3, {.down = 2}},
                                   {3, {.across = 2, .down = 2}},
                                   {3, {.across = 4, .down = 1}},
                                   {3, {.across = 4, .down = 2}},
                                   {3, {.odd_sampling = true}},
                                   {3, {.across = 2, .down = 2, .progressive = true}},
                                   {1, {}},
                                   {4, {}},
                                   {4, {.across = 2, .down = 2, .ycck = true}}};
  constexpr int kWidth = 83;
  constexpr int kHeight = 61;
  for (const auto& [components, options] : kinds) {
    const std::string jpeg = noise_jpeg(kWidth, kHeight, components, options);
    for (int eighths = 1; eighths <= 8; ++eighths) {
      const int64_t width = scaled_length(kWidth, eighths);
      const int64_t height = scaled_length(kHeight, eighths);
      const auto whole =
          decoded(bytes_of(jpeg), {.left = 0, .top = 0, .right = width, .bottom = height}, eighths);
      CounterRandom random(2, RandomPurpose::kCrop, static_cast<uint64_t>(eighths));
      for (int draw = 0; draw < 150; ++draw) {
        const auto below = [&](int64_t n) {
          return static_cast<int64_t>(random.below(static_cast<uint64_t>(n)));
        };
        const int64_t left = below(width);
        const int64_t top = below(height);
        const Box box{.left = left,
                      .top = top,
                      .right = left + 1 + below(width - left),
                      .bottom = top + 1 + below(height - top)};
        INFO(components << " components, " << options.across << "x" << options.down << ", " << eighths
                        << "/8, box " << box.left << " " << box.top << " " << box.right << " " << box.bottom);
        REQUIRE(decoded(bytes_of(jpeg), box, eighths) == cut_out(whole, width, box));
      }
    }
  }
}

TEST_CASE("a box of a progressive image without its last scans also has the pixels of the whole image",
          "[data]") {
  const std::string whole = noise_jpeg(83, 61, 3, {.across = 2, .down = 2, .progressive = true});
  // The first scan has only the mean of each block, which libjpeg would smooth.
  const size_t first_scan = whole.find("\xff\xda");
  const std::string jpeg = whole.substr(0, whole.find("\xff\xda", first_scan + 2)) + "\xff\xd9";
  REQUIRE(error_of(jpeg).empty());
  const auto rgb = decoded(bytes_of(jpeg), {.left = 0, .top = 0, .right = 83, .bottom = 61}, 8);
  CounterRandom random(3, RandomPurpose::kCrop, 0);
  for (int draw = 0; draw < 50; ++draw) {
    const Box box{.left = static_cast<int64_t>(random.below(60)),
                  .top = static_cast<int64_t>(random.below(50)),
                  .right = 83 - static_cast<int64_t>(random.below(20)),
                  .bottom = 61 - static_cast<int64_t>(random.below(10))};
    INFO("box " << box.left << " " << box.top << " " << box.right << " " << box.bottom);
    REQUIRE(decoded(bytes_of(jpeg), box, 8) == cut_out(rgb, 83, box));
  }
}

TEST_CASE("CMYK is converted as Pillow does it: c * k / 255 of the stored values", "[data]") {
  const std::string jpeg = flat_jpeg(8, 8, {200, 100, 0, 128});
  CHECK(decoded(bytes_of(jpeg), {.left = 3, .top = 3, .right = 4, .bottom = 4}, 8) ==
        std::vector<uint8_t>{100, 50, 0});
}

TEST_CASE("warnings about missing or damaged pixels are errors, others are not", "[data]") {
  const std::string good = noise_jpeg(64, 64, 3, {});
  REQUIRE(error_of(good).empty());
  // Three bytes that belong to nothing, before the marker that ends the image.
  CHECK(error_of(good.substr(0, good.size() - 2) + "abc" + good.substr(good.size() - 2)).empty());
  CHECK_SAYS(error_of(good.substr(0, good.size() / 2)), "cannot be decoded as a JPEG", "Premature end");
  const std::string cut_short = good.substr(0, good.size() / 2) + "\xff\xd9";
  CHECK_SAYS(error_of(cut_short), "premature end of data segment");
}

TEST_CASE("files that are not JPEG are named, with advice", "[data]") {
  CHECK_SAYS(error_of("GIF89a"), "this is a GIF, not a JPEG", "Convert it");
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

TEST_CASE("a crop does not need the data below it, the whole image does", "[data]") {
  const std::string jpeg = noise_jpeg(64, 64, 3, {});
  const std::string half = jpeg.substr(0, jpeg.size() / 2);
  CHECK(decoded(bytes_of(half), {.left = 0, .top = 0, .right = 64, .bottom = 8}, 8) ==
        decoded(bytes_of(jpeg), {.left = 0, .top = 0, .right = 64, .bottom = 8}, 8));
  CHECK_THROWS_AS(decoded(bytes_of(half), {.left = 0, .top = 0, .right = 64, .bottom = 64}, 8), DataError);
}

TEST_CASE("boxes outside the image are refused", "[data]") {
  const std::string jpeg = flat_jpeg(16, 8, {1, 2, 3});
  const auto decode = [&](const Box& box, int eighths) { decoded(bytes_of(jpeg), box, eighths); };
  CHECK_THROWS_AS(decode({.left = 0, .top = 0, .right = 17, .bottom = 8}, 8), std::logic_error);
  CHECK_THROWS_AS(decode({.left = 0, .top = 0, .right = 16, .bottom = 8}, 4), std::logic_error);
  CHECK_THROWS_AS(decode({.left = 3, .top = 0, .right = 3, .bottom = 8}, 8), std::logic_error);
  CHECK_THROWS_AS(decode({.left = 0, .top = 0, .right = 1, .bottom = 1}, 9), std::logic_error);
}
