#include "spec/field.h"

#include <cmath>
#include <numeric>
#include <stdexcept>

#include "spec/error.h"
#include "spec/text.h"

namespace sdp {

std::string describe(const Limits& limits) {
  const std::string min = shortest_decimal(limits.min);
  const std::string max = shortest_decimal(limits.max);
  if (limits.has_min() && limits.has_max() && !limits.exclusive_min && !limits.exclusive_max)
    return "between " + min + " and " + max;
  std::string text;
  if (limits.has_min()) text = (limits.exclusive_min ? "more than " : "at least ") + min;
  if (limits.has_min() && limits.has_max()) text += " and ";
  if (limits.has_max()) text += (limits.exclusive_max ? "below " : "at most ") + max;
  return text;
}

namespace {

constexpr double kDecimalTolerance = 1e-6;

struct Fraction {
  int64_t numerator;
  int64_t denominator;
};

std::optional<Fraction> parse_fraction(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto numerator = number_in<int64_t>(text.substr(0, slash));
  const auto denominator = number_in<int64_t>(text.substr(slash + 1));
  if (!numerator || !denominator || *numerator < 1 || *numerator > *denominator) return std::nullopt;
  const int64_t divisor = std::gcd(*numerator, *denominator);
  return Fraction{*numerator / divisor, *denominator / divisor};
}

/// "3/8, 4/8": the coverages nearest to C that are possible with n workers.
std::string nearest_coverages(double coverage, int64_t workers) {
  const auto below = static_cast<int64_t>(std::floor(coverage * static_cast<double>(workers)));
  std::string text;
  for (const int64_t owners : {below, below + 1}) {
    if (owners < 1 || owners > workers) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(owners) + "/" + std::to_string(workers);
  }
  return text;
}

}  // namespace

double value_of(const Coverage& coverage) {
  if (const auto fraction = parse_fraction(coverage.text))
    return static_cast<double>(fraction->numerator) / static_cast<double>(fraction->denominator);
  const auto decimal = number_in<double>(coverage.text);
  if (!decimal || !(*decimal > 0 && *decimal <= 1))
    throw UsageError("found '" + shortened(coverage.text) +
                     "', expected a coverage above 0 and at most 1, such as 4/8 or 0.5");
  return *decimal;
}

int64_t owners_of(const Coverage& coverage, int64_t workers) {
  if (workers < 1) throw std::logic_error("owners_of: there must be at least one worker");
  const double value = value_of(coverage);
  if (const auto fraction = parse_fraction(coverage.text)) {
    // With C in lowest terms, C n is a whole number exactly when the denominator divides n.
    if (workers % fraction->denominator == 0) return workers / fraction->denominator * fraction->numerator;
  } else {
    const int64_t owners = std::llround(value * static_cast<double>(workers));
    const double nearest = static_cast<double>(owners) / static_cast<double>(workers);
    if (owners >= 1 && std::abs(nearest - value) <= kDecimalTolerance) return owners;
  }
  throw UsageError(
      "found '" + shortened(coverage.text) +
      "', which is not a whole number of owners; expected p/n for a whole number p. Nearest with " +
      std::to_string(workers) + " workers: " + nearest_coverages(value, workers));
}

}  // namespace sdp
