#pragma once

// The shapes of a figure, as in an SVG document. Coordinates are in units of 1/96 inch (CSS pixels), x to the
// right and y downwards; later items cover earlier ones.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace sdp {

struct Point {
  double x = 0;
  double y = 0;
};

struct Color {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;

  bool operator==(const Color&) const = default;
};

/// A polyline with round joins and butt ends.
struct Polyline {
  std::vector<Point> points;
  Color color;
  double width = 1;
  std::vector<double> dashes = {};  ///< lengths of dashes and gaps in turn; empty: solid
};

/// Closed and filled.
struct Polygon {
  std::vector<Point> points;
  Color color;
  double opacity = 1;
};

enum class Anchor { kStart, kMiddle, kEnd };

struct Text {
  Point at;  ///< on the baseline
  std::string text;
  double size = 12;  ///< of the em square
  Anchor anchor = Anchor::kStart;
  Color color = {};
  bool upright = false;  ///< turned by 90 degrees, read from bottom to top
};

using Item = std::variant<Polyline, Polygon, Text>;

struct Scene {
  double width = 0;
  double height = 0;
  std::string title;  ///< of the document; a visible title is a separate item
  std::vector<Item> items;
};

}  // namespace sdp
