#include <webp/decode.h>

#include <string_view>

#include "formats/image.h"
#include "spec/error.h"

namespace sdp {

namespace {

class WebpImage final : public WholeImage {
 public:
  explicit WebpImage(std::span<const uint8_t> file) : file_(file) {
    if (WebPGetFeatures(file.data(), file.size(), &features_) != VP8_STATUS_OK)
      throw DataError("cannot be decoded as a WebP: its header is damaged or incomplete");
    if (features_.has_animation)
      throw DataError("this is an animated WebP, expected one with a single image");
    check_pixels_of_header(width(), height());
  }

  int64_t width() const override { return features_.width; }
  int64_t height() const override { return features_.height; }

 private:
  Pixels decode_file() override {
    Pixels pixels(width(), height());
    if (!WebPDecodeRGBAInto(file_.data(), file_.size(), pixels.stored(),
                            static_cast<size_t>(pixels.stride_bytes() * height()),
                            static_cast<int>(pixels.stride_bytes())))
      throw DataError("cannot be decoded as a WebP: its data are damaged or incomplete");
    return pixels;
  }

  std::span<const uint8_t> file_;
  WebPBitstreamFeatures features_{};
};

}  // namespace

bool is_webp(std::span<const uint8_t> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  return text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP";
}

std::unique_ptr<EncodedImage> open_webp(std::span<const uint8_t> file) {
  return std::make_unique<WebpImage>(file);
}

}  // namespace sdp
