#pragma once

// DejaVu Sans, which is part of the program: widths for the layout, outlines for the PNG.

#include <stb/stb_truetype.h>

#include <string>
#include <string_view>

#include "plot/outline.h"

namespace sdp {

class Font {
 public:
  Font();

  /// Of one line of UTF-8, with kerning. `size`: of the em square, in the unit of the result.
  double width(std::string_view text, double size) const;

  /// The outlines of the line's glyphs in font units, y upwards, beginning at x = 0 on the baseline.
  Outline outline(std::string_view text) const;
  /// Of a font unit, where the em square has this size.
  double scale(double size) const;

  /// The text, or as much of its beginning as fits with an ellipsis behind it.
  std::string shortened(const std::string& text, double size, double width) const;

 private:
  stbtt_fontinfo info_;
};

}  // namespace sdp
