#pragma once

// Pillow's antialiased bilinear resize, which torchvision uses for images from files, in Pillow's arithmetic
// (libImaging/Resample.c): a triangle filter with a half-width of one output pixel, and at least one source
// pixel; weights rounded to 22 bits; first the horizontal pass, rounded to 8 bits, then the vertical one.
// Only integers are used, so that every machine gives the same bytes.

#include <cstdint>
#include <span>

#include "formats/image.h"

namespace sdp {

/// A rectangle of an image in fractional pixels; pixel x covers x..x+1.
struct Window {
  double left;
  double top;
  double right;
  double bottom;
};

/// How far outside of a window of `length`, resized to `size` pixels, the source is read.
double resize_reach(double length, int64_t size);

/// Fills [3, size, size] with `window` of `source`. Pixels outside of the window contribute if `source` has
/// them; otherwise the other weights are renormalized, as at the edge of an image. A window that is a whole
/// image gives Pillow's resize(), one of whole pixels its resize(box=...). Throws std::logic_error for an
/// empty window, one outside of the source, or a span of the wrong size.
void resize_bilinear(const Pixels& source, const Window& window, int64_t size, std::span<uint8_t> chw);

}  // namespace sdp
