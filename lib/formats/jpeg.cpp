#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include <jpeglib.h>
// Include after jpeglib.h: libjpeg's message codes.
#include <jerror.h>

#include "formats/image.h"
#include "spec/error.h"

namespace sdp {

namespace {

// Columns beside the box that the upsampling of colors reads, and one more.
constexpr int64_t kMargin = 4;

/// libjpeg's default handlers call exit() and print to stderr. These handlers jump back, and treat a warning
/// as an error, because libjpeg fills missing data with gray and only warns.
struct ErrorManager {
  jpeg_error_mgr base;  // first member, so that it has the address of the whole object
  std::jmp_buf on_error;
  char message[JMSG_LENGTH_MAX];
};

void fail(j_common_ptr info) {
  auto* manager = reinterpret_cast<ErrorManager*>(info->err);
  info->err->format_message(info, manager->message);
  std::longjmp(manager->on_error, 1);
}

/// Whether the pixels are intact in spite of the warning.
bool is_harmless(int warning) {
  constexpr std::array kHarmless = {JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR, JWRN_BOGUS_ICC};
  return std::find(kHarmless.begin(), kHarmless.end(), warning) != kHarmless.end();
}

void fail_on_warning(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info->err->msg_code)) fail(info);
}

/// The type of a file that is not a JPEG, by its first bytes; empty if it may be a JPEG.
std::string_view other_format(std::span<const uint8_t> file) {
  struct Format {
    std::string_view first_bytes;
    std::string_view name;
  };
  static constexpr std::array<Format, 3> kFormats = {{{"GIF8", "a GIF"}, {"BM", "a BMP"}, {"II*", "a TIFF"}}};
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const auto& [first_bytes, name] : kFormats)
    if (text.starts_with(first_bytes)) return name;
  return {};
}

/// Converts inverted CMYK values in place. As in Pillow, each channel is c * k / 255, rounded.
void rgb_from_cmyk(uint8_t* row, int64_t width) {
  for (int64_t x = 0; x < width; ++x) {
    uint8_t* pixel = row + x * kPixelBytes;
    for (int channel = 0; channel < 3; ++channel)
      pixel[channel] = static_cast<uint8_t>((2 * pixel[channel] * pixel[3] + 255) / 510);
  }
}

/// Every function that sets a jump target returns false after a jump, and has nothing to destroy between the
/// target and libjpeg.
struct Decoder {
  jpeg_decompress_struct info{};
  ErrorManager errors{};

  Decoder() {
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = fail;
    errors.base.emit_message = fail_on_warning;
  }
  ~Decoder() { jpeg_destroy_decompress(&info); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool read_header(std::span<const uint8_t> jpeg) {
    if (setjmp(errors.on_error)) return false;
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, jpeg.data(), jpeg.size());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = is_cmyk() ? JCS_CMYK : JCS_EXT_RGBX;
    return true;
  }

  bool is_cmyk() const { return info.num_components == 4; }

  /// 4:4:4, 4:2:2, 4:4:0 or 4:2:0: one color sample per block of luma (and black) samples. For other
  /// samplings, libjpeg-turbo 2.1 gives wrong pixels when it crops and scales at once.
  bool has_usual_sampling() const {
    if (info.max_h_samp_factor > 2 || info.max_v_samp_factor > 2) return false;
    const std::span components(info.comp_info, static_cast<size_t>(info.num_components));
    return std::all_of(components.begin(), components.end(), [&](const jpeg_component_info& component) {
      const bool is_color = component.component_index == 1 || component.component_index == 2;
      return component.h_samp_factor == (is_color ? 1 : info.max_h_samp_factor) &&
             component.v_samp_factor == (is_color ? 1 : info.max_v_samp_factor);
    });
  }

  /// Decodes at least columns begin..end-1 of the scaled image; sets them to those actually decoded.
  bool start(int eighths, int64_t& begin, int64_t& end) {
    if (setjmp(errors.on_error)) return false;
    info.scale_num = static_cast<unsigned>(eighths);
    info.scale_denom = 8;
    // If the last scans of a progressive image are missing, smoothing (on in Pillow) reads blocks beside the
    // box, which are not available in skipped rows.
    info.do_block_smoothing = FALSE;
    jpeg_start_decompress(&info);
    auto first = static_cast<JDIMENSION>(begin);
    auto width = static_cast<JDIMENSION>(end - begin);
    if (!has_usual_sampling()) {
      first = 0;
      width = info.output_width;
    }
    if (width < info.output_width) jpeg_crop_scanline(&info, &first, &width);
    begin = first;
    end = first + width;
    return true;
  }

  bool skip_rows(int64_t rows) {
    if (setjmp(errors.on_error)) return false;
    jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(rows));
    return true;
  }

  /// The next row, with all columns that start() selected.
  bool read_row(uint8_t* row) {
    if (setjmp(errors.on_error)) return false;
    jpeg_read_scanlines(&info, &row, 1);
    if (is_cmyk()) rgb_from_cmyk(row, info.output_width);
    return true;
  }

  bool read_rows(uint8_t* rows, int64_t stride_bytes, int64_t count) {
    for (int64_t y = 0; y < count; ++y)
      if (!read_row(rows + y * stride_bytes)) return false;
    return true;
  }

  /// Reads to the end of the file.
  bool finish() {
    if (setjmp(errors.on_error)) return false;
    jpeg_finish_decompress(&info);
    return true;
  }

  void require(bool ok) const {
    if (!ok) throw DataError(fmt::format("cannot be decoded as a JPEG: {}", errors.message));
  }
};

/// libjpeg's warnings are errors if pixels are missing or damaged. They are accepted if the pixels are intact
/// (bytes between two markers, an unknown revision of JFIF or of Adobe's marker, a damaged color profile).
class JpegImage final : public EncodedImage {
 public:
  /// Reads the header.
  explicit JpegImage(std::span<const uint8_t> file) {
    if (file.empty()) throw DataError("the JPEG is empty");
    if (const std::string_view format = other_format(file); !format.empty())
      throw DataError(
          fmt::format("this is {}, not a JPEG, PNG or WebP. Convert it, for example with Pillow: "
                      "Image.open(FILE).convert('RGB').save(FILE, 'JPEG', quality=95)",
                      format));
    decoder_.require(decoder_.read_header(file));
    const int components = decoder_.info.num_components;
    if (components != 1 && components != 3 && components != 4)
      throw DataError(fmt::format("the image has {} color components, expected gray (1), RGB (3) or CMYK (4)",
                                  components));
    check_pixels_of_header(width(), height());
  }

  int64_t width() const override { return decoder_.info.image_width; }
  int64_t height() const override { return decoder_.info.image_height; }
  bool scales() const override { return true; }

  /// Rows below the box are not decoded.
  Pixels decode(const Box& box, int eighths) override {
    const int64_t full_width = scaled_length(width(), eighths);
    const int64_t full_height = scaled_length(height(), eighths);
    if (eighths < 1 || eighths > 8 || box.left < 0 || box.top < 0 || box.right > full_width ||
        box.bottom > full_height || box.width() < 1 || box.height() < 1)
      throw std::logic_error("JpegImage::decode: a box outside the image");

    int64_t begin = std::max<int64_t>(box.left - kMargin, 0);
    int64_t end = std::min(box.right + kMargin, full_width);
    decoder_.require(decoder_.start(eighths, begin, end));
    Pixels pixels(end - begin, box.height());
    decoder_.require(decoder_.skip_rows(box.top));
    decoder_.require(decoder_.read_rows(pixels.stored(), pixels.stride_bytes(), box.height()));
    if (box.bottom == full_height) decoder_.require(decoder_.finish());
    pixels.show({.left = box.left - begin, .top = 0, .right = box.right - begin, .bottom = box.height()});
    return pixels;
  }

 private:
  Decoder decoder_;
};

}  // namespace

std::unique_ptr<EncodedImage> open_jpeg(std::span<const uint8_t> file) {
  return std::make_unique<JpegImage>(file);
}

}  // namespace sdp
