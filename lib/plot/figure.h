#pragma once

// A chart of lines and points, written as an SVG document.

#include <filesystem>
#include <string>
#include <vector>

namespace sdp {

/// A line through (x[i], y[i]) in that order, or only points.
struct Series {
  std::string name = {};  ///< in the legend; empty: not in the legend
  std::vector<double> x = {};
  std::vector<double> y = {};  ///< same size as x; NaN: a gap in the line
  /// Same size as x: half the height of a band around the line, for example a standard deviation; empty:
  /// none.
  std::vector<double> y_error = {};
  bool has_line = true;
  bool has_markers = false;
};

struct Figure {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<Series> series = {};
  bool log_x = false;
  bool log_y = false;
  /// Names of x = 0, 1, 2, .. instead of numbers (layers of a model); written vertically.
  std::vector<std::string> x_names = {};
};

/// A standalone document with selectable text. Values that are not finite, or not positive on a logarithmic
/// axis, are left out; a figure without any value shows a note.
std::string to_svg(const Figure& figure);

/// Writes NAME.svg in the folder, replaced atomically. Throws DataError.
void write_figure(const Figure& figure, const std::filesystem::path& folder, const std::string& name);

}  // namespace sdp
