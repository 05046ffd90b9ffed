#pragma once

// The names of the series, beside or below the plot, never on it.

#include <string>
#include <vector>

#include "plot/figure.h"
#include "plot/scene.h"
#include "plot/style.h"

namespace sdp {

class Legend {
 public:
  /// For the series that have a name. `width`: of the whole scene, `height`: of the plot area.
  Legend(const Figure& figure, double width, double height);

  /// Beside the plot if names are short and few enough, otherwise below it.
  bool is_beside() const { return is_beside_; }
  double width() const { return static_cast<double>(columns_) * column_width_; }
  double height() const;
  bool empty() const { return entries_.empty(); }

  void draw(Scene& scene, Point top_left) const;

 private:
  struct Entry {
    std::string name;
    SeriesStyle style;
    bool has_line;
    bool has_markers;
    bool has_band;
  };

  size_t rows() const { return (entries_.size() + columns_ - 1) / columns_; }

  std::vector<Entry> entries_;
  bool is_beside_ = true;
  size_t columns_ = 1;
  double column_width_ = 0;
};

constexpr double kLineWidth = 1.6;
constexpr double kMarkerSize = 6;
constexpr double kBandOpacity = 0.18;

}  // namespace sdp
