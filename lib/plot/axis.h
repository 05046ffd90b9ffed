#pragma once

// An axis: its range, ticks and labels.

#include <optional>
#include <string>
#include <vector>

namespace sdp {

/// The smallest and largest of some values.
struct Extent {
  double low = 0;
  double high = 0;
};

/// Over the finite values, on a logarithmic axis over the positive ones; std::nullopt if there are none.
std::optional<Extent> extent_of(const std::vector<double>& values, bool is_log);

struct Tick {
  double value = 0;
  std::string label;
};

struct Axis {
  double low = 0;
  double high = 1;
  bool is_log = false;
  std::vector<Tick> ticks;
  std::vector<double> minor;  ///< values of lighter grid lines
  /// Labels are in units of ten to this power: 0, or a multiple of 3.
  int exponent = 0;

  /// Position of a value: 0 at `low`, 1 at `high`.
  double share(double value) const;
  /// The value clamped to the axis.
  double clamped(double value) const;
};

struct AxisOptions {
  bool is_log = false;
  int most_ticks = 8;
  double margin = 0.04;  ///< at both ends, as a share of the data's extent
  /// The axis begins at 0 if no value is negative and the smallest is below this share of the largest.
  double zero_share = 0;
};

/// An axis around the data, which may be a single value. Ticks are at multiples of 1, 2 or 5 times a power of
/// ten. On a logarithmic axis, they are at powers of ten, or at 1, 2 and 5 times powers of ten if the range
/// has less than two powers.
Axis make_axis(Extent data, const AxisOptions& options);

/// Ticks at 0, 1, 2, .. with these names.
Axis make_axis(const std::vector<std::string>& names);

/// "10³" of 3.
std::string power_of_ten_text(int exponent);

}  // namespace sdp
