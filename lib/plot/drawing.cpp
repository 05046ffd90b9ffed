#include "plot/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "plot/axis.h"
#include "plot/legend.h"
#include "plot/style.h"
#include "plot/text_width.h"
#include "plot/thin.h"

namespace sdp {
namespace {

constexpr double kWidth = 800;
constexpr double kPlotHeight = 370;
constexpr double kEdge = 16;  // free at the scene's edges
constexpr double kTickSize = 12;
constexpr double kLabelSize = 13;
constexpr double kTitleSize = 15;
constexpr double kToTick = 7;     // between the plot area and the numbers
constexpr double kToLabel = 12;   // between the numbers and the axis' label
constexpr double kToLegend = 18;  // between the plot area and a legend beside it
constexpr double kWidestName = 190;
constexpr double kMiddle = 0.36;  // of a text's size: from its baseline to its middle
constexpr double kXTickRoom = 52;
constexpr double kYTickRoom = 48;

constexpr Color kInk = {0x22, 0x22, 0x22};
constexpr Color kFrame = {0x55, 0x55, 0x55};
constexpr Color kGrid = {0xE2, 0xE2, 0xE2};
constexpr Color kMinorGrid = {0xF2, 0xF2, 0xF2};

struct Box {
  double left = 0;
  double top = 0;
  double right = kWidth;
  double bottom = kPlotHeight;

  double width() const { return right - left; }
  double middle_x() const { return (left + right) / 2; }
  double middle_y() const { return (top + bottom) / 2; }
};

/// A point of a series in the scene; `above` and `below` are the ends of its band.
struct Placed {
  Point at;
  double above = 0;
  double below = 0;
};
/// Consecutive points without a gap.
using Stretch = std::vector<Placed>;

void check(const Series& series) {
  const bool has_errors = !series.y_error.empty();
  if (series.x.size() != series.y.size() || (has_errors && series.y_error.size() != series.y.size()))
    throw std::logic_error(fmt::format("figure: series \"{}\" has {} values of x, {} of y and {} of y_error",
                                       series.name, series.x.size(), series.y.size(), series.y_error.size()));
}

double error_of(const Series& series, size_t i) {
  if (series.y_error.empty() || !std::isfinite(series.y_error[i])) return 0;
  return std::abs(series.y_error[i]);
}

bool is_visible(const Figure& figure, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!figure.log_x || x > 0) && (!figure.log_y || y > 0);
}

/// Values that an axis has to include.
struct Shown {
  std::vector<double> x;
  std::vector<double> y;
};

Shown shown_values(const Figure& figure) {
  Shown shown;
  for (const Series& series : figure.series) {
    check(series);
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!is_visible(figure, series.x[i], series.y[i])) continue;
      shown.x.push_back(series.x[i]);
      // On a logarithmic axis, a non-positive lower end is ignored and drawn at the end of the axis.
      for (const double error : {-error_of(series, i), 0.0, error_of(series, i)})
        shown.y.push_back(series.y[i] + error);
    }
  }
  return shown;
}

std::string label_of(const std::string& label, const Axis& axis) {
  if (axis.exponent == 0) return label;
  return fmt::format("{}{}(×{})", label, label.empty() ? "" : " ", power_of_ten_text(axis.exponent));
}

class Drawing {
 public:
  explicit Drawing(const Figure& figure)
      : figure_(figure), legend_(figure, kWidth - 2 * kEdge, kPlotHeight) {}

  Scene draw() {
    scene_.title = figure_.title;
    scene_.width = kWidth;
    const Shown shown = shown_values(figure_);
    const auto x_extent = extent_of(shown.x, figure_.log_x);
    const auto y_extent = extent_of(shown.y, figure_.log_y);
    has_values_ = x_extent.has_value() && y_extent.has_value();
    make_axes(x_extent.value_or(Extent{0, 1}), y_extent.value_or(Extent{0, 1}));
    draw_frame();
    draw_labels();
    for (size_t i = 0; i < figure_.series.size(); ++i)
      draw_bands(figure_.series[i], style_of(i));
    for (size_t i = 0; i < figure_.series.size(); ++i)
      draw_series(figure_.series[i], style_of(i));
    if (!has_values_) add_text({box_.middle_x(), box_.middle_y()}, "no values", kTitleSize, Anchor::kMiddle);
    draw_legend();
    return std::move(scene_);
  }

 private:
  /// The y axis determines the width of the plot area, which determines how many ticks fit on the x axis.
  void make_axes(Extent x, Extent y) {
    y_ = make_axis(y, {.is_log = figure_.log_y && has_values_,
                       .most_ticks = static_cast<int>(kPlotHeight / kYTickRoom),
                       .margin = 0.05});
    box_.top = figure_.title.empty() ? kEdge : kEdge + kTitleSize + 14;
    box_.bottom = box_.top + kPlotHeight;
    box_.left = kEdge + widest(y_) + kToTick + (figure_.y_label.empty() ? 0 : kLabelSize + kToLabel);
    box_.right = kWidth - kEdge - 6;
    if (!legend_.empty() && legend_.is_beside()) box_.right -= legend_.width() + kToLegend - 6;
    x_ = figure_.x_names.empty() ? make_axis(x, {.is_log = figure_.log_x && has_values_,
                                                 .most_ticks = static_cast<int>(box_.width() / kXTickRoom),
                                                 .margin = 0.025,
                                                 .zero_share = 0.2})
                                 : make_axis(figure_.x_names);
  }

  double widest(const Axis& axis) const {
    double widest = 0;
    for (const Tick& tick : axis.ticks)
      widest = std::max(widest, text_width(tick.label, kTickSize));
    return widest;
  }

  double x_of(double value) const { return box_.left + x_.share(value) * box_.width(); }
  double y_of(double value) const { return box_.bottom - y_.share(value) * kPlotHeight; }

  void add_line(Point from, Point to, Color color, double width) {
    scene_.items.emplace_back(Polyline{.points = {from, to}, .color = color, .width = width});
  }

  void add_text(Point at, const std::string& text, double size, Anchor anchor, bool upright = false) {
    if (text.empty()) return;
    scene_.items.emplace_back(
        Text{.at = at, .text = text, .size = size, .anchor = anchor, .color = kInk, .upright = upright});
  }

  void add_vertical(double value, Color color) {
    add_line({x_of(value), box_.top}, {x_of(value), box_.bottom}, color, 1);
  }
  void add_horizontal(double value, Color color) {
    add_line({box_.left, y_of(value)}, {box_.right, y_of(value)}, color, 1);
  }

  void draw_frame() {
    if (has_values_) {
      for (const double value : x_.minor)
        add_vertical(value, kMinorGrid);
      for (const double value : y_.minor)
        add_horizontal(value, kMinorGrid);
      for (const Tick& tick : x_.ticks)
        add_vertical(tick.value, kGrid);
      for (const Tick& tick : y_.ticks)
        add_horizontal(tick.value, kGrid);
    }
    add_line({box_.left, box_.bottom}, {box_.right, box_.bottom}, kFrame, 1.2);
    add_line({box_.left, box_.top}, {box_.left, box_.bottom}, kFrame, 1.2);
  }

  /// Draws numbers or names below the plot area; returns their lower end.
  double draw_x_ticks() {
    if (figure_.x_names.empty()) {
      const double baseline = box_.bottom + kToTick + kTickSize;
      for (const Tick& tick : x_.ticks)
        add_text({x_of(tick.value), baseline}, tick.label, kTickSize, Anchor::kMiddle);
      return baseline + 4;
    }
    const double room = box_.width() / static_cast<double>(x_.ticks.size());
    const auto every = static_cast<size_t>(std::ceil((kTickSize + 1) / room));
    double longest = 0;
    for (size_t i = 0; i < x_.ticks.size(); i += every) {
      const std::string name = shortened(x_.ticks[i].label, kTickSize, kWidestName);
      longest = std::max(longest, text_width(name, kTickSize));
      add_text({x_of(x_.ticks[i].value) + kMiddle * kTickSize, box_.bottom + kToTick}, name, kTickSize,
               Anchor::kEnd, /*upright=*/true);
    }
    return box_.bottom + kToTick + longest;
  }

  void draw_labels() {
    double end = box_.bottom;
    if (has_values_) {
      for (const Tick& tick : y_.ticks)
        add_text({box_.left - kToTick, y_of(tick.value) + kMiddle * kTickSize}, tick.label, kTickSize,
                 Anchor::kEnd);
      end = draw_x_ticks();
    }
    add_text({kEdge + kLabelSize - 3, box_.middle_y()}, label_of(figure_.y_label, y_), kLabelSize,
             Anchor::kMiddle, /*upright=*/true);
    if (const std::string label = label_of(figure_.x_label, x_); !label.empty()) {
      end += kToLabel + kLabelSize - 4;
      add_text({box_.middle_x(), end}, label, kLabelSize, Anchor::kMiddle);
      end += 4;
    }
    add_text({box_.middle_x(), kEdge + kTitleSize - 2},
             shortened(figure_.title, kTitleSize, 2 * std::min(box_.middle_x(), kWidth - box_.middle_x())),
             kTitleSize, Anchor::kMiddle);
    scene_.height = std::ceil(end + kEdge);
  }

  std::vector<Stretch> stretches_of(const Series& series) const {
    std::vector<Stretch> stretches(1);
    for (size_t i = 0; i < series.x.size(); ++i) {
      const double x = series.x[i];
      const double y = series.y[i];
      if (!is_visible(figure_, x, y)) {
        if (!stretches.back().empty()) stretches.emplace_back();
        continue;
      }
      const double error = error_of(series, i);
      stretches.back().push_back(
          {{x_of(x), y_of(y)}, y_of(y_.clamped(y + error)), y_of(y_.clamped(y - error))});
    }
    return stretches;
  }

  void draw_bands(const Series& series, const SeriesStyle& style) {
    if (series.y_error.empty() || !series.has_line) return;
    for (const Stretch& stretch : stretches_of(series)) {
      if (stretch.size() < 2) continue;
      Polygon band{.points = {}, .color = style.color, .opacity = kBandOpacity};
      for (const Placed& point : stretch)
        band.points.push_back({point.at.x, point.above});
      for (auto point = stretch.rbegin(); point != stretch.rend(); ++point)
        band.points.push_back({point->at.x, point->below});
      scene_.items.emplace_back(std::move(band));
    }
  }

  void draw_series(const Series& series, const SeriesStyle& style) {
    for (const Stretch& stretch : stretches_of(series)) {
      const bool is_line = series.has_line && stretch.size() > 1;
      if (is_line) {
        std::vector<Point> points;
        for (const Placed& placed : stretch)
          points.push_back(placed.at);
        scene_.items.emplace_back(Polyline{thinned(points), style.color, kLineWidth, style.dashes});
      }
      // A line with a single point would be invisible.
      if (is_line && !series.has_markers) continue;
      for (const Placed& placed : stretch) {
        if (!is_line && placed.below - placed.above > 0.5) draw_error_bar(placed, style.color);
        scene_.items.emplace_back(marker_shape(style.marker, placed.at, kMarkerSize, style.color));
      }
    }
  }

  void draw_error_bar(const Placed& placed, Color color) {
    constexpr double kHalfCap = 4;
    const double x = placed.at.x;
    add_line({x, placed.above}, {x, placed.below}, color, 1.2);
    for (const double y : {placed.above, placed.below})
      add_line({x - kHalfCap, y}, {x + kHalfCap, y}, color, 1.2);
  }

  void draw_legend() {
    if (legend_.empty()) return;
    if (legend_.is_beside()) return legend_.draw(scene_, {box_.right + kToLegend, box_.top});
    const double left = std::max(kEdge, std::min(box_.left, kWidth - kEdge - legend_.width()));
    legend_.draw(scene_, {left, scene_.height});
    scene_.height += std::ceil(legend_.height() + kEdge);
  }

  const Figure& figure_;
  Legend legend_;
  Scene scene_;
  Box box_;
  Axis x_;
  Axis y_;
  bool has_values_ = false;
};

}  // namespace

Scene draw(const Figure& figure) {
  return Drawing(figure).draw();
}

}  // namespace sdp
