#pragma once

#include <cstdint>

namespace sdp {

/// Columns left..right-1 of rows top..bottom-1.
struct Box {
  int64_t left;
  int64_t top;
  int64_t right;
  int64_t bottom;

  int64_t width() const { return right - left; }
  int64_t height() const { return bottom - top; }
  int64_t area() const { return width() * height(); }
  bool operator==(const Box&) const = default;
};

}  // namespace sdp
