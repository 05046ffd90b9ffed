#pragma once

// Numbers for people: three significant digits and a unit.

#include <cstdint>
#include <string>

namespace sdp {

/// 512 B, 1.50 KiB, 12.3 MiB, 1.25 GiB, ...
std::string format_bytes(int64_t bytes);
/// 999, 12.3, 1.25 M, ... (k, M, G, T, P: powers of 1000)
std::string format_count(double count);
/// 12.34 % of a share of 0.1234.
std::string format_percent(double share);
/// 12.3 s, 3m 04s, 1h 02m; "?" for what is not a time.
std::string format_duration(double seconds);

}  // namespace sdp
