#pragma once

// How much room a line of text takes, for the layout of figures.

#include <string>
#include <string_view>

namespace sdp {

/// Of one line of UTF-8 in DejaVu Sans, without kerning. `size`: of the em square, in the unit of the result.
/// A reader's machine without that font shows another, of about these widths.
double text_width(std::string_view text, double size);

/// The text, or as much of its beginning as fits with an ellipsis behind it.
std::string shortened(const std::string& text, double size, double room);

}  // namespace sdp
