#include "plot/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace sdp {
namespace {

constexpr double kRounding = 1e-9;  // relative to a step: rounding error of its multiples

std::string with_minus_sign(const std::string& number) {
  return number.starts_with('-') ? "\u2212" + number.substr(1) : number;
}

/// Distance between ticks: mantissa times a power of ten.
struct Step {
  int mantissa = 1;
  int power = 0;

  /// n steps, exactly rounded if a double can represent the power.
  double times(double n) const {
    return power < 0 ? n * mantissa / std::pow(10, -power) : n * mantissa * std::pow(10, power);
  }
};

Step step_of(double range, int most_ticks) {
  const double least = range / std::max(most_ticks, 1);
  const int power = static_cast<int>(std::floor(std::log10(least)));
  for (const int mantissa : {1, 2, 5})
    if (Step{mantissa, power}.times(1) >= least * (1 - kRounding)) return {mantissa, power};
  return {1, power + 1};
}

void add_linear_ticks(Axis& axis, int most_ticks) {
  const Step step = step_of(axis.high - axis.low, most_ticks);
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  if (largest >= 1e5 || largest < 1e-3)
    axis.exponent = 3 * static_cast<int>(std::floor(std::log10(largest) / 3 + kRounding));
  const int decimals = std::max(0, axis.exponent - step.power);
  const double one = step.times(1);
  const double first = std::ceil(axis.low / one - kRounding);
  const double last = std::floor(axis.high / one + kRounding);
  for (double n = first; n <= last; ++n) {
    const double value = n == 0 ? 0 : step.times(n);
    axis.ticks.push_back(
        {value, with_minus_sign(fmt::format("{:.{}f}", value / std::pow(10, axis.exponent), decimals))});
  }
}

std::vector<int> powers_between(double low, double high) {
  std::vector<int> powers;
  for (int power = static_cast<int>(std::ceil(std::log10(low) - kRounding));
       power <= std::log10(high) + kRounding; ++power)
    powers.push_back(power);
  return powers;
}

/// Multiples of powers of ten in the axis' range.
std::vector<double> multiples_between(const Axis& axis, std::initializer_list<int> mantissas) {
  std::vector<double> values;
  const int first = static_cast<int>(std::floor(std::log10(axis.low)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.high)));
  for (int power = first; power <= last; ++power)
    for (const int mantissa : mantissas)
      if (const double value = Step{mantissa, power}.times(1); value >= axis.low && value <= axis.high)
        values.push_back(value);
  return values;
}

void add_log_ticks(Axis& axis, int most_ticks) {
  const std::vector<int> powers = powers_between(axis.low, axis.high);
  if (powers.size() < 2) {
    const std::vector<double> values = multiples_between(axis, {1, 2, 5});
    if (values.size() < 3) return add_linear_ticks(axis, most_ticks);
    for (const double value : values)
      axis.ticks.push_back({value, fmt::format("{:g}", value)});
    return;
  }
  const size_t every =
      (powers.size() + static_cast<size_t>(most_ticks) - 1) / static_cast<size_t>(most_ticks);
  const bool plain = powers.front() >= -3 && powers.back() <= 4;
  for (size_t i = 0; i < powers.size(); i += every) {
    const double value = Step{1, powers[i]}.times(1);
    axis.ticks.push_back({value, plain ? fmt::format("{:g}", value) : power_of_ten_text(powers[i])});
  }
  if (every == 1) axis.minor = multiples_between(axis, {2, 3, 4, 5, 6, 7, 8, 9});
}

Axis log_range(Extent data, double margin) {
  const double range = std::log10(data.high) - std::log10(data.low);
  const double extra = range > kRounding ? std::pow(10, range * margin) : 2;
  return {.low = data.low / extra, .high = data.high * extra, .is_log = true, .ticks = {}, .minor = {}};
}

Axis linear_range(Extent data, const AxisOptions& options) {
  // Make the range wide enough to divide into steps in floating point.
  const double largest = std::max(std::abs(data.low), std::abs(data.high));
  double extra = (data.high - data.low) * options.margin;
  if (data.high - data.low <= 1e-9 * largest) extra = 0.1 * largest;
  if (largest == 0) extra = 1;
  Axis axis{.low = data.low - extra, .high = data.high + extra, .ticks = {}, .minor = {}};
  const bool is_positive = data.low >= 0 && data.high > 0;
  if (is_positive && (axis.low < 0 || data.low <= options.zero_share * data.high)) axis.low = 0;
  return axis;
}

}  // namespace

std::optional<Extent> extent_of(const std::vector<double>& values, bool is_log) {
  std::optional<Extent> extent;
  for (const double value : values) {
    if (!std::isfinite(value) || (is_log && value <= 0)) continue;
    if (!extent) extent = {value, value};
    extent = {std::min(extent->low, value), std::max(extent->high, value)};
  }
  return extent;
}

double Axis::share(double value) const {
  if (is_log) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

double Axis::clamped(double value) const {
  return std::clamp(value, low, high);
}

Axis make_axis(Extent data, const AxisOptions& options) {
  Axis axis = options.is_log ? log_range(data, options.margin) : linear_range(data, options);
  if (options.is_log) {
    add_log_ticks(axis, options.most_ticks);
  } else {
    add_linear_ticks(axis, options.most_ticks);
  }
  return axis;
}

Axis make_axis(const std::vector<std::string>& names) {
  Axis axis{.low = -0.5, .high = static_cast<double>(names.size()) - 0.5, .ticks = {}, .minor = {}};
  for (size_t i = 0; i < names.size(); ++i)
    axis.ticks.push_back({static_cast<double>(i), names[i]});
  return axis;
}

std::string power_of_ten_text(int exponent) {
  constexpr std::array<std::string_view, 10> kDigits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "10⁻" : "10";
  for (const char digit : std::to_string(std::abs(exponent)))
    text += kDigits[static_cast<size_t>(digit - '0')];
  return text;
}

}  // namespace sdp
