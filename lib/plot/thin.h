#pragma once

#include <vector>

#include "plot/scene.h"

namespace sdp {

/// Reduces a line with far more points than can be distinguished. Of consecutive points within half a unit of
/// x, it keeps the first, the highest, the lowest and the last. Shorter lines are returned unchanged.
std::vector<Point> thinned(const std::vector<Point>& line);

}  // namespace sdp
