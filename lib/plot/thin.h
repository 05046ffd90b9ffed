#pragma once

#include <vector>

#include "plot/scene.h"

namespace sdp {

/// A line of far more points than the eye can tell apart with fewer of them: of those in a row within half a
/// unit of x, the first, the highest, the lowest and the last. Shorter lines are returned as they are.
std::vector<Point> thinned(const std::vector<Point>& line);

}  // namespace sdp
