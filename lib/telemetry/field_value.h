#pragma once

// A record's member as one number, for scalars and tables.

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

#include "telemetry/fields.h"

namespace sdp {

/// NaN for an unset optional.
inline double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The mean of a list; NaN if it is empty.
template <class Number>
requires std::is_arithmetic_v<Number>
double number_of(Number value) {
  return static_cast<double>(value);
}
template <class Number>
requires std::is_arithmetic_v<Number>
double number_of(const std::optional<Number>& value) {
  return value ? number_of(*value) : std::numeric_limits<double>::quiet_NaN();
}
template <class Number>
requires std::is_arithmetic_v<Number>
double number_of(const std::vector<Number>& values) {
  return mean_of({values.begin(), values.end()});
}

template <class Member>
concept HasNumber = requires(const Member& member) {
  number_of(member);
};

/// Combines the values of all processes into one; NaN if there are none.
template <class Record, class Member>
double number_of_ranks(const ByRank<Record>& record, Member Record::*member, OverProcesses how) {
  std::vector<double> values;
  for (const Record& of_rank : record.ranks)
    values.push_back(number_of(of_rank.*member));
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  switch (how) {
    case OverProcesses::kMax:
      return *std::max_element(values.begin(), values.end());
    case OverProcesses::kSum:
      return std::accumulate(values.begin(), values.end(), 0.0);
    case OverProcesses::kMean:
      break;
  }
  return mean_of(values);
}

}  // namespace sdp
