#include "plot/canvas.h"

#include <stb/stb_truetype.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sdp {
namespace {

// stb's coordinates are 16-bit integers: so many of them are a pixel.
constexpr double kSubdivisions = 16;

/// Pixels that an outline may touch.
struct Cells {
  int x = 0;
  int y = 0;
  int columns = 0;
  int rows = 0;
};

Cells cells_of(const Outline& outline) {
  constexpr double kFar = std::numeric_limits<double>::max();
  double left = kFar, top = kFar, right = -kFar, bottom = -kFar;
  const auto include = [&](Point point) {
    left = std::min(left, point.x);
    right = std::max(right, point.x);
    top = std::min(top, point.y);
    bottom = std::max(bottom, point.y);
  };
  for (const Corner& corner : outline) {
    include(corner.at);
    // A curve stays between its ends and its control point.
    if (corner.kind == Corner::Kind::kCurve) include(corner.control);
  }
  const int x = static_cast<int>(std::floor(left));
  const int y = static_cast<int>(std::floor(top));
  return {x, y, static_cast<int>(std::ceil(right)) - x + 1, static_cast<int>(std::ceil(bottom)) - y + 1};
}

std::vector<stbtt_vertex> vertices_of(const Outline& outline, const Cells& cells) {
  const auto units = [](double pixels) { return static_cast<short>(std::lround(pixels * kSubdivisions)); };
  std::vector<stbtt_vertex> vertices;
  for (const Corner& corner : outline) {
    stbtt_vertex vertex = {};
    vertex.x = units(corner.at.x - cells.x);
    vertex.y = units(corner.at.y - cells.y);
    vertex.type = corner.kind == Corner::Kind::kFirst ? STBTT_vmove : STBTT_vline;
    if (corner.kind == Corner::Kind::kCurve) {
      vertex.cx = units(corner.control.x - cells.x);
      vertex.cy = units(corner.control.y - cells.y);
      vertex.type = STBTT_vcurve;
    }
    vertices.push_back(vertex);
  }
  return vertices;
}

}  // namespace

Canvas::Canvas(int width, int height)
    : width_(width), height_(height), pixels_(size_t{3} * width * height, 255) {}

void Canvas::fill(const Outline& outline, Colour colour, double opacity) {
  if (outline.empty()) return;
  const Cells cells = cells_of(outline);
  std::vector<stbtt_vertex> vertices = vertices_of(outline, cells);
  std::vector<unsigned char> coverage(static_cast<size_t>(cells.columns) * cells.rows);
  stbtt__bitmap mask{.w = cells.columns, .h = cells.rows, .stride = cells.columns, .pixels = coverage.data()};
  constexpr float kFlatnessPixels = 0.1F;
  constexpr float kScale = 1 / kSubdivisions;
  stbtt_Rasterize(&mask, kFlatnessPixels, vertices.data(), static_cast<int>(vertices.size()), kScale, kScale,
                  /*shift_x=*/0, /*shift_y=*/0, /*x_off=*/0, /*y_off=*/0, /*invert=*/0, /*userdata=*/nullptr);
  size_t cell = 0;
  for (int row = 0; row < cells.rows; ++row)
    for (int column = 0; column < cells.columns; ++column)
      if (const unsigned char covered = coverage[cell++]; covered > 0)
        blend(cells.x + column, cells.y + row, colour, opacity * covered / 255);
}

void Canvas::blend(int x, int y, Colour colour, double share) {
  if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
  uint8_t* pixel = &pixels_[3 * (static_cast<size_t>(y) * width_ + x)];
  const uint8_t parts[] = {colour.red, colour.green, colour.blue};
  for (int i = 0; i < 3; ++i)
    pixel[i] = static_cast<uint8_t>(std::lround(pixel[i] + share * (parts[i] - pixel[i])));
}

}  // namespace sdp
