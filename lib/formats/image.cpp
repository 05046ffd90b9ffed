#include "formats/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "spec/error.h"
#include "spec/text.h"

namespace sdp {

Pixels::Pixels(int64_t width, int64_t height)
    : box_{.left = 0, .top = 0, .right = width, .bottom = height},
      stride_bytes_(width * kPixelBytes),
      bytes_(std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(stride_bytes_ * height))) {}

Pixels WholeImage::decode(const Box& box, int eighths) {
  if (eighths != 8 || box.left < 0 || box.top < 0 || box.right > width() || box.bottom > height() ||
      box.width() < 1 || box.height() < 1)
    throw std::logic_error("WholeImage::decode: a box outside the image");
  Pixels pixels = decode_file();
  pixels.show(box);
  return pixels;
}

std::unique_ptr<EncodedImage> open_image(std::span<const uint8_t> file) {
  const std::string wrong = wrong_content({reinterpret_cast<const char*>(file.data()), file.size()});
  if (!wrong.empty()) throw DataError(wrong);
  if (is_png(file)) return open_png(file);
  if (is_webp(file)) return open_webp(file);
  return open_jpeg(file);
}

std::vector<uint8_t> decode_image(std::span<const uint8_t> file, int64_t height, int64_t width) {
  const std::unique_ptr<EncodedImage> image = open_image(file);
  if (image->height() != height || image->width() != width)
    throw DataError(fmt::format("the image is {} x {} pixels, expected {} x {}", image->width(),
                                image->height(), width, height));
  const Pixels pixels = image->decode_all();
  std::vector<uint8_t> chw(static_cast<size_t>(3 * height * width));
  for (int64_t channel = 0; channel < 3; ++channel)
    for (int64_t y = 0; y < height; ++y) {
      const uint8_t* row = pixels.row(y) + channel;
      uint8_t* out = chw.data() + (channel * height + y) * width;
      for (int64_t x = 0; x < width; ++x)
        out[x] = row[x * kPixelBytes];
    }
  return chw;
}

void check_pixels_of_header(int64_t width, int64_t height) {
  constexpr int64_t kMostPixels = int64_t{1} << 28;
  if (width * height > kMostPixels)
    throw DataError(
        fmt::format("the image is {} x {} pixels, expected at most {} in all. Scale it down or remove it",
                    width, height, kMostPixels));
}

namespace {

bool has_extension(std::string_view name, std::initializer_list<std::string_view> extensions) {
  return std::ranges::find(extensions, lower_case(extension_of(name))) != extensions.end();
}

}  // namespace

std::string_view extension_of(std::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
}

bool is_jpeg_name(std::string_view name) {
  return has_extension(name, {"jpg", "jpeg", "jpe", "jfif", "jif"});
}

bool is_image_name(std::string_view name) {
  return is_jpeg_name(name) || has_extension(name, {"png", "webp"});
}

bool is_other_image_name(std::string_view name) {
  return has_extension(name,
                       {"bmp", "gif", "ppm", "pgm", "tif", "tiff", "jp2", "j2k", "avif", "heic", "heif"});
}

bool starts_as_image(std::span<const uint8_t> first_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(first_bytes.data()), first_bytes.size());
  constexpr std::array<std::string_view, 5> kMagics = {"\xff\xd8\xff", "\x89PNG", "GIF8", "II*",
                                                       std::string_view("MM\0*", 4)};
  return std::ranges::any_of(kMagics, [&](std::string_view magic) { return text.starts_with(magic); }) ||
         (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP");
}

}  // namespace sdp
