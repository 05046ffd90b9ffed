#include "plot/thin.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace sdp {

std::vector<Point> thinned(const std::vector<Point>& line) {
  constexpr size_t kMostPoints = 1500;
  constexpr double kColumnWidth = 0.5;
  if (line.size() <= kMostPoints) return line;
  const auto column_of = [](const Point& point) { return std::floor(point.x / kColumnWidth); };
  const auto is_higher = [](const Point& a, const Point& b) { return a.y < b.y; };
  std::vector<Point> kept;
  for (auto first = line.begin(); first != line.end();) {
    const auto end = std::find_if(first, line.end(),
                                  [&](const Point& point) { return column_of(point) != column_of(*first); });
    const auto [highest, lowest] = std::minmax_element(first, end, is_higher);
    for (const auto& point : std::set{first, highest, lowest, end - 1})
      kept.push_back(*point);
    first = end;
  }
  return kept;
}

}  // namespace sdp
