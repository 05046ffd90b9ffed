#pragma once

// Estimates the width of a line of text, for the layout of figures.

#include <string>
#include <string_view>

namespace sdp {

/// Width of one line of UTF-8 in DejaVu Sans, without kerning. `size`: of the em square, in the unit of the
/// result. Machines without that font show another of similar widths.
double text_width(std::string_view text, double size);

/// The text, shortened with an ellipsis if it does not fit.
std::string shortened(const std::string& text, double size, double room);

}  // namespace sdp
