#pragma once

// Encoded images of the formats that are read, JPEG, PNG and WebP, and their decoded pixels, RGB as Pillow's
// convert("RGB") gives them.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace sdp {

/// Bytes per decoded pixel: R, G, B and an unused one, so that a vector register holds whole pixels.
constexpr int64_t kPixelBytes = 4;

/// Columns left..right-1 of rows top..bottom-1.
struct Box {
  int64_t left;
  int64_t top;
  int64_t right;
  int64_t bottom;

  int64_t width() const { return right - left; }
  int64_t height() const { return bottom - top; }
  int64_t area() const { return width() * height(); }
  bool operator==(const Box&) const = default;
};

/// Decoded pixels, of which a box is shown. Row y of the box begins at row(y).
class Pixels {
 public:
  /// Uninitialized pixels, all of which are shown.
  Pixels(int64_t width, int64_t height);

  int64_t width() const { return box_.width(); }
  int64_t height() const { return box_.height(); }
  int64_t stride_bytes() const { return stride_bytes_; }
  const uint8_t* row(int64_t y) const {
    return bytes_.get() + (box_.top + y) * stride_bytes_ + box_.left * kPixelBytes;
  }
  /// The first pixel that is stored, for decoders.
  uint8_t* stored() { return bytes_.get(); }
  /// Shows only a box of what is stored.
  void show(const Box& box) { box_ = box; }

 private:
  Box box_;
  int64_t stride_bytes_;
  std::unique_ptr<uint8_t[]> bytes_;
};

/// One file in memory, which must outlive the object. Errors are DataErrors with only the reason: the caller
/// adds the file.
class EncodedImage {
 public:
  virtual ~EncodedImage() = default;

  virtual int64_t width() const = 0;
  virtual int64_t height() const = 0;

  /// Whether decode() can scale the image, which saves the time for the omitted pixels.
  virtual bool scales() const { return false; }

  /// Pixels of `box`, in columns and rows of the image scaled by eighths / 8 (1..8); the same as decoding the
  /// whole image gives there. Call it once. Throws std::logic_error for a box outside the image.
  virtual Pixels decode(const Box& box, int eighths = 8) = 0;
  /// All pixels; reads the file to its end, which finds all errors.
  Pixels decode_all() { return decode({.left = 0, .top = 0, .right = width(), .bottom = height()}); }
};

/// An image of a format that is always decoded as a whole and never scaled.
class WholeImage : public EncodedImage {
 public:
  Pixels decode(const Box& box, int eighths) final;

 private:
  virtual Pixels decode_file() = 0;
};

/// Rows or columns of an image scaled by eighths / 8 (1..8), where the file has `length`: rounded up.
constexpr int64_t scaled_length(int64_t length, int eighths) {
  return (length * eighths + 7) / 8;
}

/// Decodes with libjpeg-turbo. Gray is repeated in all channels; CMYK and YCCK are converted like Pillow's
/// convert("RGB") (values stored inverted, Adobe's convention). The EXIF orientation is ignored, as in
/// torchvision. Scaling is part of the inverse transform.
std::unique_ptr<EncodedImage> open_jpeg(std::span<const uint8_t> file);

bool is_png(std::span<const uint8_t> file);
/// Decodes with libpng. Palettes are looked up, gray is repeated in all channels, alpha, transparent colors
/// and gamma are ignored, and 16-bit values keep their upper 8 bits, except those of gray images without
/// alpha, which are cut off at 255.
std::unique_ptr<EncodedImage> open_png(std::span<const uint8_t> file);

bool is_webp(std::span<const uint8_t> file);
/// Decodes with libwebp, lossy and lossless files. Alpha is ignored; animations are refused.
std::unique_ptr<EncodedImage> open_webp(std::span<const uint8_t> file);

/// Reads the header of an image, whose first bytes say which format it has; anything else is opened as a
/// JPEG.
std::unique_ptr<EncodedImage> open_image(std::span<const uint8_t> file);

/// Decodes an image of exactly height x width pixels to [3, height, width].
std::vector<uint8_t> decode_image(std::span<const uint8_t> file, int64_t height, int64_t width);

/// Throws DataError if a header states more pixels than several times those of camera images, as a damaged
/// one may.
void check_pixels_of_header(int64_t width, int64_t height);

// Which files are images, by their names and by their first bytes.

/// The text after the last dot of the last part of a path; empty if there is none.
std::string_view extension_of(std::string_view name);

/// Whether the extension is jpg, jpeg, jpe, jfif or jif, regardless of case.
bool is_jpeg_name(std::string_view name);

/// Whether the extension is a JPEG's, png or webp, regardless of case.
bool is_image_name(std::string_view name);

/// Whether the extension is that of an image format that Pillow reads and this program does not,
/// regardless of case.
bool is_other_image_name(std::string_view name);

constexpr int64_t kImageMagicBytes = 12;  ///< that starts_as_image() looks at

/// Whether a file's first bytes are those of a JPEG, PNG, GIF, WebP or TIFF.
bool starts_as_image(std::span<const uint8_t> first_bytes);

}  // namespace sdp
