#include "spec/units.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <string_view>

namespace sdp {
namespace {

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// Three significant digits below 1000, whole numbers above (up to 1023 of a binary unit).
std::string three_digits(double value) {
  if (value < 9.995) return print("%.2f", value);
  if (value < 99.95) return print("%.1f", value);
  return print("%.0f", value);
}

/// `value` >= 0 in the largest unit that leaves at least 1 of it.
std::string scaled(double value, double base, std::span<const std::string_view> units) {
  size_t unit = 0;
  // What would be printed as a whole unit of the next size is one.
  while (unit + 1 < units.size() && value >= base - 0.5) {
    value /= base;
    ++unit;
  }
  const std::string number =
      unit == 0 && value == std::floor(value) ? print("%.0f", value) : three_digits(value);
  return units[unit].empty() ? number : number + " " + std::string(units[unit]);
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  const std::string text = scaled(std::abs(static_cast<double>(bytes)), 1024, kUnits);
  return bytes < 0 ? "-" + text : text;
}

std::string format_count(double count) {
  constexpr std::array<std::string_view, 6> kUnits = {"", "k", "M", "G", "T", "P"};
  if (!std::isfinite(count)) return print("%g", count);
  const std::string text = scaled(std::abs(count), 1000, kUnits);
  return count < 0 ? "-" + text : text;
}

std::string format_percent(double share) {
  return print("%.2f %%", 100 * share);
}

std::string format_milliseconds(double ms) {
  return print(ms < 10 ? "%.2f ms" : "%.0f ms", ms);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 59.95) return print("%.1f s", seconds);
  if (seconds < 3599.5) {
    const long long whole = std::llround(seconds);
    return print("%lldm %02llds", whole / 60, whole % 60);
  }
  const long long minutes = std::llround(seconds / 60);
  return print("%lldh %02lldm", minutes / 60, minutes % 60);
}

std::string format_numbers(const std::vector<int>& numbers, size_t most_characters) {
  std::string text;
  size_t cut = 0;  // where the text ends that is left room for what follows
  const std::string rest = " ... (" + std::to_string(numbers.size()) + " in all)";
  const auto add = [&](const std::string& word) {
    text += (text.empty() ? "" : " ") + word;
    if (cut == 0 || text.size() + rest.size() <= most_characters) cut = text.size();
  };
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1)
      ++end;
    if (end - begin >= 3) {
      add(std::to_string(numbers[begin]) + "-" + std::to_string(numbers[end - 1]));
    } else {
      for (size_t i = begin; i < end; ++i)
        add(std::to_string(numbers[i]));
    }
    begin = end;
  }
  return text.size() <= most_characters ? text : text.substr(0, cut) + rest;
}

}  // namespace sdp
