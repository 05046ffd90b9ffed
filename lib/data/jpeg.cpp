#include "data/jpeg.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <string>

#include <jpeglib.h>

#include "spec/error.h"

namespace sdp {

namespace {

/// libjpeg's own handlers call exit() and print to stderr. These jump back, and take a warning for an error:
/// libjpeg fills what is missing with grey and warns.
struct ErrorManager {
  jpeg_error_mgr base;  // first, so that its address is that of the whole
  std::jmp_buf on_error;
  char message[JMSG_LENGTH_MAX];
};

void fail(j_common_ptr info) {
  auto* manager = reinterpret_cast<ErrorManager*>(info->err);
  info->err->format_message(info, manager->message);
  std::longjmp(manager->on_error, 1);
}

void fail_on_warning(j_common_ptr info, int level) {
  if (level < 0) fail(info);
}

/// Everything between the jump's source and target lives in here or is trivially destructible.
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

  bool start(std::span<const uint8_t> jpeg) {
    if (setjmp(errors.on_error)) return false;
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, jpeg.data(), jpeg.size());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    return true;
  }

  /// `rows`: room for [output_height, output_width, 3].
  bool decode(uint8_t* rows) {
    if (setjmp(errors.on_error)) return false;
    jpeg_start_decompress(&info);
    const size_t stride = size_t{info.output_width} * info.output_components;
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = rows + stride * info.output_scanline;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    return true;
  }
};

}  // namespace

std::vector<uint8_t> decode_jpeg(std::span<const uint8_t> jpeg, int64_t height, int64_t width) {
  if (jpeg.empty()) throw DataError("the JPEG is empty");
  Decoder decoder;
  if (!decoder.start(jpeg))
    throw DataError(std::string("not a JPEG that decodes: ") + decoder.errors.message);
  if (decoder.info.image_height != height || decoder.info.image_width != width)
    throw DataError("the image is " + std::to_string(decoder.info.image_width) + " x " +
                    std::to_string(decoder.info.image_height) + " pixels, expected " + std::to_string(width) +
                    " x " + std::to_string(height));
  if (decoder.info.num_components != 1 && decoder.info.num_components != 3)
    throw DataError("the image has " + std::to_string(decoder.info.num_components) +
                    " colour components, expected RGB (3) or grey (1)");

  std::vector<uint8_t> hwc(static_cast<size_t>(height * width * 3));
  if (!decoder.decode(hwc.data()))
    throw DataError(std::string("not a JPEG that decodes: ") + decoder.errors.message);

  std::vector<uint8_t> chw(hwc.size());
  const size_t pixels = static_cast<size_t>(height * width);
  for (size_t channel = 0; channel < 3; ++channel)
    for (size_t pixel = 0; pixel < pixels; ++pixel)
      chw[channel * pixels + pixel] = hwc[pixel * 3 + channel];
  return chw;
}

}  // namespace sdp
