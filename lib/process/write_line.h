#pragma once

#include <string_view>

namespace sdp {

/// Writes a line to stderr immediately, replacing a progress line on a terminal. For a process that is about
/// to end. Async-signal-safe.
void write_line(std::string_view text);

}  // namespace sdp
