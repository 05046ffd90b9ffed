#pragma once

// How series are distinguished: by color, and in grayscale by dashes and markers.

#include <cstddef>
#include <vector>

#include "plot/scene.h"

namespace sdp {

enum class Marker { kCircle, kSquare, kTriangle, kDiamond, kTriangleDown, kPentagon, kStar };

struct SeriesStyle {
  Color color;
  std::vector<double> dashes;
  Marker marker = Marker::kCircle;
};

/// Style of the series with this index. Colors are from the palette of Okabe and Ito (2008) for color-blind
/// readers, without yellow, which is too pale on white.
SeriesStyle style_of(size_t index);

/// The marker's outline around a point. `size`: the width of the square.
Polygon marker_shape(Marker marker, Point center, double size, Color color);

}  // namespace sdp
