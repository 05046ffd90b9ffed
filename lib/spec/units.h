#pragma once

// Numbers for people. Measured ones have three significant digits and a unit.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sdp {

/// 512 B, 1.50 KiB, 12.3 MiB, 1.25 GiB, ...
std::string format_bytes(int64_t bytes);
/// 999, 12.3, 1.25 M, ... (k, M, G, T, P: powers of 1000)
std::string format_count(double count);
/// 12.34 % of a share of 0.1234.
std::string format_percent(double share);
/// 1.23 ms, 123 ms.
std::string format_milliseconds(double ms);
/// 12.3 s, 3m 04s, 1h 02m; "?" for what is not a time.
std::string format_duration(double seconds);
/// The indices of equal values, ascending; the values in order of their first index.
template <class T>
std::vector<std::pair<T, std::vector<int>>> grouped(const std::vector<T>& values) {
  std::vector<std::pair<T, std::vector<int>>> groups;
  for (size_t i = 0; i < values.size(); ++i) {
    auto same = std::ranges::find(groups, values[i], &std::pair<T, std::vector<int>>::first);
    if (same == groups.end()) same = groups.emplace(same, values[i], std::vector<int>());
    same->second.push_back(static_cast<int>(i));
  }
  return groups;
}
/// "0 2 4-7" of ascending whole numbers: three and more that follow each other are a range. A text of more
/// than `most_characters` is cut: "0 2 4-7 ... (32 in all)".
std::string format_numbers(const std::vector<int>& numbers, size_t most_characters = std::string::npos);

}  // namespace sdp
