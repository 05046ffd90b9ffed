#pragma once

// Pillow's antialiased bilinear resize, which torchvision uses for images from files, in Pillow's arithmetic
// (libImaging/Resample.c): a triangle as wide as one output pixel, and at least one source pixel, on either
// side; weights rounded to 22 bits; the horizontal pass first, rounded to 8 bits, then the vertical one.
// Integers alone, so that every machine gives the same bytes.

#include <cstdint>
#include <span>

#include "data/formats/jpeg.h"

namespace sdp {

/// A rectangle of an image in pixels and parts of them; pixel x covers x..x+1.
struct Window {
  double left;
  double top;
  double right;
  double bottom;
};

/// How far outside of a window of `length` resized to `size` pixels the source is looked at.
double resize_reach(double length, int64_t size);

/// Fills [3, size, size] with `window` of `source`. Pixels outside of the window count where `source` has
/// them, otherwise the weights of the others grow, as at the edge of an image. A window that is a whole image
/// gives Pillow's resize(), one of whole pixels its resize(box=...). Throws std::logic_error for an empty
/// window, one outside of the source, or a span of another size.
void resize_bilinear(const Pixels& source, const Window& window, int64_t size, std::span<uint8_t> chw);

}  // namespace sdp
