#include <stb/stb_image_write.h>

#include <cmath>
#include <numbers>

#include "plot/canvas.h"
#include "plot/writers.h"

namespace sdp {
namespace {

void add_polygon(Outline& outline, const std::vector<Point>& points) {
  for (size_t i = 0; i < points.size(); ++i)
    outline.push_back({.kind = i == 0 ? Corner::Kind::kFirst : Corner::Kind::kLine, .at = points[i]});
}

/// A stroke from one point to another, as a rectangle that turns the same way round whatever its direction.
void add_stroke(Outline& outline, Point from, Point to, double width) {
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  if (length == 0) return;
  const double across_x = -(to.y - from.y) / length * width / 2;
  const double across_y = (to.x - from.x) / length * width / 2;
  add_polygon(outline, {{from.x + across_x, from.y + across_y},
                        {from.x - across_x, from.y - across_y},
                        {to.x - across_x, to.y - across_y},
                        {to.x + across_x, to.y + across_y}});
}

/// Turns the same way round as a stroke.
void add_disc(Outline& outline, Point centre, double diameter) {
  constexpr int kCorners = 16;
  std::vector<Point> corners;
  for (int i = 0; i < kCorners; ++i) {
    const double angle = 2 * std::numbers::pi * i / kCorners;
    corners.push_back({centre.x + diameter / 2 * std::cos(angle), centre.y + diameter / 2 * std::sin(angle)});
  }
  add_polygon(outline, corners);
}

/// Whether strokes that meet in `at` leave a gap outside.
bool is_bend(Point from, Point at, Point to) {
  constexpr double kStraight = 0.1;  // radians
  const double turn = std::atan2(to.y - at.y, to.x - at.x) - std::atan2(at.y - from.y, at.x - from.x);
  return std::abs(std::remainder(turn, 2 * std::numbers::pi)) > kStraight;
}

// Of a line's width: smooth edges of a disc and a stroke that lie on each other would be seen as a bulge.
constexpr double kJoin = 0.9;

/// The pieces of a line that its dashes leave.
std::vector<std::vector<Point>> dashed(const std::vector<Point>& line, const std::vector<double>& dashes) {
  if (dashes.empty() || line.empty()) return {line};
  std::vector<std::vector<Point>> pieces = {{line[0]}};
  size_t dash = 0;
  double left = dashes[0];
  for (size_t i = 1; i < line.size(); ++i) {
    Point from = line[i - 1];
    double length = std::hypot(line[i].x - from.x, line[i].y - from.y);
    while (length > left) {
      const double share = left / length;
      from = {from.x + share * (line[i].x - from.x), from.y + share * (line[i].y - from.y)};
      length -= left;
      if (dash % 2 == 0) pieces.back().push_back(from);
      dash = (dash + 1) % dashes.size();
      left = dashes[dash];
      if (dash % 2 == 0) pieces.push_back({from});
    }
    left -= length;
    if (dash % 2 == 0) pieces.back().push_back(line[i]);
  }
  return pieces;
}

class Painter {
 public:
  Painter(Canvas& canvas, const Font& font, double scale) : canvas_(canvas), font_(font), scale_(scale) {}

  void operator()(const Polygon& polygon) {
    Outline outline;
    add_polygon(outline, scaled(polygon.points));
    canvas_.fill(outline, polygon.colour, polygon.opacity);
  }

  void operator()(const Polyline& line) {
    std::vector<double> dashes = line.dashes;
    for (double& length : dashes)
      length *= scale_;
    Outline outline;
    for (const std::vector<Point>& piece : dashed(scaled(line.points), dashes)) {
      for (size_t i = 1; i < piece.size(); ++i) {
        add_stroke(outline, piece[i - 1], piece[i], line.width * scale_);
        if (i + 1 < piece.size() && is_bend(piece[i - 1], piece[i], piece[i + 1]))
          add_disc(outline, piece[i], kJoin * line.width * scale_);
      }
    }
    canvas_.fill(outline, line.colour, 1);
  }

  void operator()(const Text& text) {
    const double scale = font_.scale(text.size * scale_);
    double begin = 0;
    if (text.anchor != Anchor::kStart) begin -= font_.width(text.text, text.size * scale_);
    if (text.anchor == Anchor::kMiddle) begin /= 2;
    const Point at = {text.at.x * scale_, text.at.y * scale_};
    const auto placed = [&](Point point) -> Point {
      const double along = begin + point.x * scale;
      const double up = point.y * scale;
      return text.upright ? Point{at.x - up, at.y - along} : Point{at.x + along, at.y - up};
    };
    Outline outline = font_.outline(text.text);
    for (Corner& corner : outline) {
      corner.at = placed(corner.at);
      corner.control = placed(corner.control);
    }
    canvas_.fill(outline, text.colour, 1);
  }

 private:
  std::vector<Point> scaled(std::vector<Point> points) const {
    for (Point& point : points)
      point = {point.x * scale_, point.y * scale_};
    return points;
  }

  Canvas& canvas_;
  const Font& font_;
  double scale_;
};

void append(void* text, void* data, int size) {
  static_cast<std::string*>(text)->append(static_cast<const char*>(data), static_cast<size_t>(size));
}

}  // namespace

std::string png_of(const Scene& scene, const Font& font, int width_pixels) {
  const double scale = width_pixels / scene.width;
  Canvas canvas(width_pixels, static_cast<int>(std::lround(scene.height * scale)));
  Painter painter(canvas, font, scale);
  for (const Item& item : scene.items)
    std::visit(painter, item);
  std::string png;
  stbi_write_png_to_func(append, &png, canvas.width(), canvas.height(), 3, canvas.pixels().data(),
                         3 * canvas.width());
  return png;
}

}  // namespace sdp
