#include "plot/style.h"

#include <array>
#include <cmath>
#include <numbers>

namespace sdp {
namespace {

constexpr std::array<Color, 7> kColors = {{{0x00, 0x72, 0xB2},    // blue
                                           {0xD5, 0x5E, 0x00},    // vermillion
                                           {0x00, 0x9E, 0x73},    // bluish green
                                           {0xCC, 0x79, 0xA7},    // reddish purple
                                           {0xE6, 0x9F, 0x00},    // orange
                                           {0x56, 0xB4, 0xE9},    // sky blue
                                           {0x00, 0x00, 0x00}}};  // black

constexpr size_t kMarkers = 7;  // shifted by one in each round of the colors

/// Corners at equal angles around the center, the first one straight up or down. The second radius is used
/// for every other corner.
Polygon around(Point center, int corners, double radius, double second_radius, bool upside_down = false) {
  Polygon shape;
  for (int i = 0; i < corners; ++i) {
    const double angle = 2 * std::numbers::pi * i / corners + (upside_down ? std::numbers::pi : 0);
    const double r = i % 2 == 0 ? radius : second_radius;
    shape.points.push_back({center.x + r * std::sin(angle), center.y - r * std::cos(angle)});
  }
  return shape;
}

Polygon outline(Marker marker, Point at, double size) {
  const double r = size / 2;
  switch (marker) {
    case Marker::kSquare:
      return {{{at.x - r, at.y - r}, {at.x + r, at.y - r}, {at.x + r, at.y + r}, {at.x - r, at.y + r}}, {}};
    case Marker::kTriangle:
      return around(at, 3, 1.3 * r, 1.3 * r);
    case Marker::kTriangleDown:
      return around(at, 3, 1.3 * r, 1.3 * r, /*upside_down=*/true);
    case Marker::kDiamond:
      return around(at, 4, 1.35 * r, 1.35 * r);
    case Marker::kPentagon:
      return around(at, 5, 1.2 * r, 1.2 * r);
    case Marker::kStar:
      return around(at, 10, 1.5 * r, 0.65 * r);
    case Marker::kCircle:
      break;
  }
  return around(at, 24, 1.1 * r, 1.1 * r);
}

}  // namespace

SeriesStyle style_of(size_t index) {
  // The number of dash patterns is coprime to that of colors, so a pair repeats only after all combinations.
  static const std::vector<std::vector<double>> kDashes = {{},           {8, 4},  {2, 3},
                                                           {9, 3, 2, 3}, {16, 4}, {5, 2, 2, 2, 2, 2}};
  return {.color = kColors[index % kColors.size()],
          .dashes = kDashes[index % kDashes.size()],
          .marker = static_cast<Marker>((index + index / kColors.size()) % kMarkers)};
}

Polygon marker_shape(Marker marker, Point center, double size, Color color) {
  Polygon shape = outline(marker, center, size);
  shape.color = color;
  return shape;
}

}  // namespace sdp
