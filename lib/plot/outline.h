#pragma once

// Closed curves that are to be filled.

#include <vector>

#include "plot/scene.h"

namespace sdp {

/// A corner of a closed curve, reached from the one before it in a straight line, or along a quadratic Bezier
/// curve with this control point.
struct Corner {
  enum class Kind { kFirst, kLine, kCurve };

  Kind kind = Kind::kFirst;
  Point at;
  Point control = {};  ///< kCurve only
};

/// One closed curve after the other, each beginning with a kFirst.
using Outline = std::vector<Corner>;

}  // namespace sdp
