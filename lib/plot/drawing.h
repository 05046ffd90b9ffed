#pragma once

// A figure as a scene: axes, grid, series, legend.

#include "plot/figure.h"
#include "plot/scene.h"

namespace sdp {

/// 800 units wide; how high depends on the legend and the names on the x axis. Throws std::logic_error where
/// a series has not as many values of x, y and, if there are any, y_error.
Scene draw(const Figure& figure);

}  // namespace sdp
