#include "data/formats/image_name.h"

#include <algorithm>
#include <array>
#include <string>

#include "spec/text.h"

namespace sdp {

namespace {

template <size_t count>
bool has_extension(std::string_view name, const std::array<std::string_view, count>& extensions) {
  const std::string extension = lower_case(extension_of(name));
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

}  // namespace

std::string_view extension_of(std::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
}

bool is_jpeg_name(std::string_view name) {
  constexpr std::array<std::string_view, 5> kExtensions = {"jpg", "jpeg", "jpe", "jfif", "jif"};
  return has_extension(name, kExtensions);
}

bool is_image_name(std::string_view name) {
  constexpr std::array<std::string_view, 2> kExtensions = {"png", "webp"};
  return is_jpeg_name(name) || has_extension(name, kExtensions);
}

bool is_other_image_name(std::string_view name) {
  constexpr std::array<std::string_view, 11> kExtensions = {"bmp", "gif", "ppm",  "pgm",  "tif", "tiff",
                                                            "jp2", "j2k", "avif", "heic", "heif"};
  return has_extension(name, kExtensions);
}

bool starts_as_image(std::span<const uint8_t> first_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(first_bytes.data()), first_bytes.size());
  constexpr std::array<std::string_view, 5> kMagics = {"\xff\xd8\xff", "\x89PNG", "GIF8", "II*",
                                                       std::string_view("MM\0*", 4)};
  return std::any_of(kMagics.begin(), kMagics.end(),
                     [&](std::string_view magic) { return text.starts_with(magic); }) ||
         (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP");
}

}  // namespace sdp
