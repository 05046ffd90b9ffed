#pragma once

// Attributes and value types of field lists: limits, names of enum values, the effect of a change, coverage.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sdp {

/// Accepted values of a number, or of every number in a list. Bounds are inclusive unless `exclusive_*` is
/// set.
struct Limits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool exclusive_min = false;
  bool exclusive_max = false;

  constexpr bool has_min() const { return min != -std::numeric_limits<double>::infinity(); }
  constexpr bool has_max() const { return max != std::numeric_limits<double>::infinity(); }
  constexpr bool contains(double value) const {
    return (exclusive_min ? value > min : value >= min) && (exclusive_max ? value < max : value <= max);
  }
};

constexpr Limits at_least(double min) {
  return {.min = min};
}
constexpr Limits positive() {
  return {.min = 0, .exclusive_min = true};
}
constexpr Limits in_range(double min, double max) {
  return {.min = min, .max = max};
}
constexpr Limits at_least_and_below(double min, double max) {
  return {.min = min, .max = max, .exclusive_max = true};
}
constexpr Limits more_than_and_at_most(double min, double max) {
  return {.min = min, .max = max, .exclusive_min = true};
}
constexpr Limits strictly_between(double min, double max) {
  return {.min = min, .max = max, .exclusive_min = true, .exclusive_max = true};
}

/// The limits in words, for example "at least 0 and below 1"; empty if every value is accepted.
std::string describe(const Limits& limits);

/// Marks a key that has no default.
struct Required {};
inline constexpr Required kRequired;

/// Marks a number of a record that TensorBoard shows; of a list its mean.
struct Shown {};
inline constexpr Shown kShown;

/// Marks a number of a record that keeps its default if a line lacks the key; others are then NaN.
struct OrDefault {};
inline constexpr OrDefault kOrDefault;

/// Marks an optional that is null in JSON without a value; the keys of others are left out.
struct OrNull {};
inline constexpr OrNull kOrNull;

/// The key of a struct whose keys stand among those of the enclosing one.
inline constexpr std::string_view kInline = {};

/// How a changed value of a key affects a resumed run.
enum class OnResume {
  kFixed,      ///< the saved state depends on the key: the change is refused
  kRestOfRun,  ///< the rest of the run follows the new value: a warning is printed
  kFree        ///< the key only says where and how the run continues, or what is evaluated and saved
};

/// Whether `report` distinguishes runs by a key.
enum class InReport {
  kCompared,       ///< runs with different values get separate rows, and the row's name contains the value
  kInRegime,       ///< separate rows; the regime's name and the coverage already express the value
  kFollowsRegime,  ///< separate rows; named only if runs of one regime and coverage differ in the value
  kNotCompared     ///< runs with different values share a row
};

/// Coverage C = p/n as the user wrote it: a fraction ("4/8") or a decimal ("0.5"). `owners_of` computes p
/// once n is known.
struct Coverage {
  std::string text = "1";

  bool operator==(const Coverage&) const = default;
};

/// C as a number in (0, 1]. Throws UsageError (without a position) if the text is anything else.
double value_of(const Coverage& coverage);

/// p = C n, for n >= 1. A fraction must give a whole number exactly; a decimal may differ from k/n by 1e-6.
/// Throws UsageError (without a position) if C is not k/n for an integer k in 1..n. The message names the
/// nearest valid coverages.
int64_t owners_of(const Coverage& coverage, int64_t workers);

/// Names of an enum's values. SDP_ENUM_NAMES specialises it next to the enum.
template <class Enum>
struct EnumNames;

/// The YAML name of an enum's value.
template <class Enum>
constexpr std::string_view name_of(Enum value) {
  for (const auto& [candidate, name] : EnumNames<Enum>::values)
    if (candidate == value) return name;
  return "?";
}

/// The value of an enum that has this name; std::nullopt if none has.
template <class Enum>
constexpr std::optional<Enum> value_named(std::string_view wanted) {
  for (const auto& [candidate, name] : EnumNames<Enum>::values)
    if (name == wanted) return candidate;
  return std::nullopt;
}

// Limits shared by keys of several sections. They are far above the values used in training, yet low enough
// that no product of these numbers overflows 64 bits. cost/step_limits.h checks the products.

inline constexpr double kMostWidth = 1 << 15;
inline constexpr double kMostImageSize = 1 << 12;
inline constexpr double kMostSteps = 1 << 30;
inline constexpr double kMostEvalSamples = 1e12;

}  // namespace sdp

#define SDP_ENUM_NAMES(Enum, ...)                                                                   \
  template <>                                                                                       \
  struct EnumNames<Enum> {                                                                          \
    static constexpr auto values = std::to_array<std::pair<Enum, std::string_view>>({__VA_ARGS__}); \
  };
