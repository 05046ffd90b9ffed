#pragma once

// A figure as a scene: axes, grid, series, legend.

#include "plot/figure.h"
#include "plot/scene.h"

namespace sdp {

/// 800 units wide; the height depends on the legend and on the names on the x axis. Throws std::logic_error
/// if a series has different numbers of x, y and (if any) y_error values.
Scene draw(const Figure& figure);

}  // namespace sdp
