#pragma once

// How series are distinguished: by colour, and in greyscale by dashes and markers.

#include <cstddef>
#include <vector>

#include "plot/scene.h"

namespace sdp {

enum class Marker { kCircle, kSquare, kTriangle, kDiamond, kTriangleDown, kPentagon, kStar };

struct SeriesStyle {
  Colour colour;
  std::vector<double> dashes;
  Marker marker = Marker::kCircle;
};

/// Style of the series with this index. Colours are from the palette of Okabe and Ito (2008) for colour-blind
/// readers, without yellow, which is too pale on white.
SeriesStyle style_of(size_t index);

/// The marker's outline around a point. `size`: the width of the square.
Polygon marker_shape(Marker marker, Point centre, double size, Colour colour);

}  // namespace sdp
