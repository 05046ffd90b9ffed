#pragma once

// An axis: the range it shows and where it is labelled.

#include <optional>
#include <string>
#include <vector>

namespace sdp {

/// The smallest and largest of some values.
struct Extent {
  double low = 0;
  double high = 0;
};

/// Over the finite values, on a logarithmic axis over the positive ones; nothing where there are none.
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

  /// Where a value lies: 0 at `low`, 1 at `high`.
  double share(double value) const;
  /// The value itself, or what of the axis is nearest to it.
  double clamped(double value) const;
};

struct AxisOptions {
  bool is_log = false;
  int most_ticks = 8;
  double margin = 0.04;  ///< free at both ends, as a share of the data's extent
  /// The axis begins at 0 where the data, none of it negative, begins below this share of its end.
  double zero_share = 0;
};

/// Around the data, which may be a single value. Ticks are at multiples of 1, 2 or 5 times a power of ten, on
/// a logarithmic axis at powers of ten, or at 1, 2 and 5 times those where it has less than two of them.
Axis make_axis(Extent data, const AxisOptions& options);

/// Ticks at 0, 1, 2, .. with these names.
Axis make_axis(const std::vector<std::string>& names);

/// "10³" of 3.
std::string power_of_ten_text(int exponent);

}  // namespace sdp
