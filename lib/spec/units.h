#pragma once

// Numbers for people. Measured ones have three significant digits and a unit.

#include <cstdint>
#include <string>
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
/// "0 2 4-7" of ascending whole numbers: three and more that follow each other are a range. A text of more
/// than `most_characters` is cut: "0 2 4-7 ... (32 in all)".
std::string format_numbers(const std::vector<int>& numbers, size_t most_characters = std::string::npos);

}  // namespace sdp
