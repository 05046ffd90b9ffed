#pragma once

// Decodes JPEG files to RGB pixels with libjpeg-turbo. Gray is repeated in all channels; CMYK and YCCK are
// converted like Pillow's convert("RGB") (values stored inverted, Adobe's convention). The EXIF orientation
// is ignored, as in torchvision.
//
// A warning of libjpeg is an error if
// pixels are missing or damaged. It is accepted if the pixels are intact (bytes between two markers, an
// unknown revision of JFIF or of Adobe's marker, a damaged color profile).

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "formats/image.h"

namespace sdp {

/// One JPEG file in memory, which must outlive the object.
class JpegImage final : public EncodedImage {
 public:
  /// Reads the header.
  explicit JpegImage(std::span<const uint8_t> file);
  ~JpegImage() override;
  JpegImage(const JpegImage&) = delete;
  JpegImage& operator=(const JpegImage&) = delete;

  int64_t width() const override;
  int64_t height() const override;
  bool scales() const override { return true; }

  /// Rows or columns of the image scaled by eighths / 8 (1..8), `length` * eighths / 8 rounded up, where the
  /// file has `length`. The scaling is part of the inverse transform, which saves the time for the omitted
  /// pixels.
  static int64_t scaled(int64_t length, int eighths) { return (length * eighths + 7) / 8; }

  /// Rows below the box are not decoded.
  Pixels decode(const Box& box, int eighths = 8) override;

 private:
  struct Decoder;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace sdp
