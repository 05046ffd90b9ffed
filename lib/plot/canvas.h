#pragma once

// Shapes painted on pixels, with smooth edges.

#include <cstdint>
#include <vector>

#include "plot/outline.h"
#include "plot/scene.h"

namespace sdp {

class Canvas {
 public:
  /// White.
  Canvas(int width, int height);

  /// Paints closed curves, in pixels, none of them larger than 2000 pixels. What several of them cover is
  /// painted once, if they turn the same way round, and not at all where they turn opposite ways (the holes
  /// of letters).
  void fill(const Outline& outline, Colour colour, double opacity);

  int width() const { return width_; }
  int height() const { return height_; }
  /// Three bytes a pixel, row by row from the top.
  const std::vector<uint8_t>& pixels() const { return pixels_; }

 private:
  void blend(int x, int y, Colour colour, double share);

  int width_;
  int height_;
  std::vector<uint8_t> pixels_;
};

}  // namespace sdp
