#pragma once

// Decodes JPEG files to RGB pixels with libjpeg-turbo. Gray is repeated in all channels; CMYK and YCCK are
// converted like Pillow's convert("RGB") (values stored inverted, Adobe's convention). The EXIF orientation
// is ignored, as in torchvision.
//
// Errors are DataErrors with only the reason: the caller adds the file. A warning of libjpeg is an error if
// pixels are missing or damaged. It is accepted if the pixels are intact (bytes between two markers, an
// unknown revision of JFIF or of Adobe's marker, a damaged color profile).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "data/box.h"

namespace sdp {

/// Bytes per decoded pixel: R, G, B and an unused one, so that a vector register holds whole pixels.
constexpr int64_t kPixelBytes = 4;

/// Decoded pixels of a box. Row y begins at row(y).
class Pixels {
 public:
  Pixels(int64_t stored_width, int64_t skipped_columns, int64_t width, int64_t height);

  int64_t width() const { return width_; }
  int64_t height() const { return height_; }
  int64_t stride_bytes() const { return stride_bytes_; }
  const uint8_t* row(int64_t y) const { return bytes_.get() + y * stride_bytes_ + skipped_bytes_; }

 private:
  friend class JpegImage;

  int64_t width_;
  int64_t height_;
  int64_t stride_bytes_;
  int64_t skipped_bytes_;  // decoded columns left of the box
  std::unique_ptr<uint8_t[]> bytes_;
};

/// One JPEG file in memory, which must outlive the object.
class JpegImage {
 public:
  /// Reads the header.
  explicit JpegImage(std::span<const uint8_t> file);
  ~JpegImage();
  JpegImage(const JpegImage&) = delete;
  JpegImage& operator=(const JpegImage&) = delete;

  int64_t width() const;
  int64_t height() const;

  /// Rows or columns of the image scaled by eighths / 8 (1..8), `length` * eighths / 8 rounded up, where the
  /// file has `length`. The scaling is part of the inverse transform, which saves the time for the omitted
  /// pixels.
  static int64_t scaled(int64_t length, int eighths) { return (length * eighths + 7) / 8; }

  /// Pixels of `box`, in columns and rows of the scaled image; the same as decoding the whole image gives
  /// there. Rows below are not decoded. Call it once. Throws std::logic_error for a box outside the image.
  Pixels decode(const Box& box, int eighths = 8);

  /// Decodes the whole file and discards the pixels, to find errors. Call it once.
  void check();

 private:
  struct Decoder;
  std::unique_ptr<Decoder> decoder_;
};

/// Decodes a JPEG of exactly height x width pixels to [3, height, width].
std::vector<uint8_t> decode_jpeg(std::span<const uint8_t> jpeg, int64_t height, int64_t width);

}  // namespace sdp
