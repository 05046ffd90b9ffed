#include "plot/legend.h"

#include <algorithm>

#include "plot/text_width.h"

namespace sdp {
namespace {

constexpr double kTextSize = 12;
constexpr double kRowHeight = 19;
constexpr double kSampleWidth = 34;
constexpr double kGap = 7;  // between a sample and its name
constexpr double kColumnGap = 18;
constexpr double kWidestBeside = 190;  // a legend with wider names goes below the plot
constexpr Color kTextColor = {0x22, 0x22, 0x22};

}  // namespace

Legend::Legend(const Figure& figure, double width, double height) {
  double widest = 0;
  const double room = width - kSampleWidth - kGap - kColumnGap;
  for (size_t i = 0; i < figure.series.size(); ++i) {
    const Series& series = figure.series[i];
    if (series.name.empty()) continue;
    const std::string name = shortened(series.name, kTextSize, room);
    widest = std::max(widest, text_width(name, kTextSize));
    entries_.push_back({.name = name,
                        .style = style_of(i),
                        .has_line = series.has_line,
                        .has_markers = series.has_markers || !series.has_line,
                        .has_band = series.has_line && !series.y_error.empty()});
  }
  column_width_ = kSampleWidth + kGap + widest + kColumnGap;
  is_beside_ = widest <= kWidestBeside && static_cast<double>(entries_.size()) * kRowHeight <= height;
  if (!is_beside_ && !entries_.empty())
    columns_ = std::clamp<size_t>(static_cast<size_t>(width / column_width_), 1, entries_.size());
}

double Legend::height() const {
  return kRowHeight * static_cast<double>(rows());
}

void Legend::draw(Scene& scene, Point top_left) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const size_t column = i / rows();
    const size_t row = i % rows();
    const double x = top_left.x + column_width_ * static_cast<double>(column);
    const double y = top_left.y + kRowHeight * (static_cast<double>(row) + 0.5);
    const double end = x + kSampleWidth;
    if (entry.has_band)
      scene.items.emplace_back(
          Polygon{{{x, y - 6}, {end, y - 6}, {end, y + 6}, {x, y + 6}}, entry.style.color, kBandOpacity});
    if (entry.has_line)
      scene.items.emplace_back(
          Polyline{{{x, y}, {end, y}}, entry.style.color, kLineWidth, entry.style.dashes});
    if (entry.has_markers)
      scene.items.emplace_back(
          marker_shape(entry.style.marker, {(x + end) / 2, y}, kMarkerSize, entry.style.color));
    scene.items.emplace_back(Text{.at = {end + kGap, y + 0.36 * kTextSize},
                                  .text = entry.name,
                                  .size = kTextSize,
                                  .color = kTextColor});
  }
}

}  // namespace sdp
