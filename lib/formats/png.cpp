#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "formats/image.h"
#include "spec/error.h"

namespace sdp {

namespace {

/// Functions that set a jump target return false after a jump, and have nothing to destroy between the target
/// and libpng.
class PngImage final : public WholeImage {
 public:
  explicit PngImage(std::span<const uint8_t> file) : rest_(file) {
    if (!info_) throw std::bad_alloc();
    require(read_header());
    check_pixels_of_header(width(), height());
  }

  int64_t width() const override { return png_get_image_width(png_, info_); }
  int64_t height() const override { return png_get_image_height(png_, info_); }

 private:
  Pixels decode_file() override {
    Pixels pixels(width(), height());
    std::vector<uint8_t*> rows;
    for (int64_t y = 0; y < height(); ++y)
      rows.push_back(pixels.stored() + y * pixels.stride_bytes());
    require(read_rows(rows.data()));
    if (is_wide_gray())
      for (uint8_t* const row : rows)
        expand_gray(row);
    return pixels;
  }

  [[noreturn]] static void fail(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngImage*>(png_get_error_ptr(png));
    std::snprintf(self->message_, sizeof self->message_, "%s", message);
    std::longjmp(self->on_error_, 1);
  }
  /// libpng warns of what does not change pixels, such as damaged texts and color profiles.
  static void ignore_warning(png_structp, png_const_charp) {}

  static void read(png_structp png, png_bytep out, size_t count) {
    auto* self = static_cast<PngImage*>(png_get_io_ptr(png));
    if (count > self->rest_.size()) png_error(png, "the file ends too early");
    std::memcpy(out, self->rest_.data(), count);
    self->rest_ = self->rest_.subspan(count);
  }

  bool read_header() {
    if (setjmp(on_error_)) return false;
    png_set_read_fn(png_, this, read);
    png_read_info(png_, info_);
    return true;
  }

  bool is_wide_gray() const {
    return png_get_bit_depth(png_, info_) == 16 && png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY;
  }

  bool read_rows(uint8_t** rows) {
    if (setjmp(on_error_)) return false;
    if (!is_wide_gray()) {
      png_set_strip_16(png_);
      png_set_palette_to_rgb(png_);
      png_set_expand_gray_1_2_4_to_8(png_);
      png_set_gray_to_rgb(png_);
      png_set_strip_alpha(png_);
      png_set_filler(png_, 0xff, PNG_FILLER_AFTER);
    }
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  /// From big-endian values of 16 bits at the row's beginning. Backwards, as what is written takes more
  /// space.
  void expand_gray(uint8_t* row) const {
    for (int64_t x = width() - 1; x >= 0; --x) {
      const uint8_t value = row[2 * x] == 0 ? row[2 * x + 1] : 0xff;
      std::fill_n(row + x * kPixelBytes, kPixelBytes, value);
    }
  }

  void require(bool ok) const {
    if (!ok) throw DataError(fmt::format("cannot be decoded as a PNG: {}", message_));
  }

  std::span<const uint8_t> rest_;
  png_structp png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, ignore_warning);
  png_infop info_ = png_ ? png_create_info_struct(png_) : nullptr;
  struct Destroyer {
    PngImage* image;
    ~Destroyer() { png_destroy_read_struct(&image->png_, &image->info_, nullptr); }
  } destroyer_{this};
  std::jmp_buf on_error_;
  char message_[128] = "";
};

}  // namespace

bool is_png(std::span<const uint8_t> file) {
  constexpr size_t kSignatureBytes = 8;
  return file.size() >= kSignatureBytes && png_sig_cmp(file.data(), 0, kSignatureBytes) == 0;
}

std::unique_ptr<EncodedImage> open_png(std::span<const uint8_t> file) {
  return std::make_unique<PngImage>(file);
}

}  // namespace sdp
