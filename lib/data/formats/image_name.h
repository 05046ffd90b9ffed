#pragma once

// Which files are images, by their names and by their first bytes.

#include <cstdint>
#include <span>
#include <string_view>

namespace sdp {

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
