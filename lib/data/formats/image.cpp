#include "data/formats/image.h"

#include <fmt/format.h>

#include <stdexcept>

#include "data/formats/jpeg.h"
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
  return std::make_unique<JpegImage>(file);
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

}  // namespace sdp
