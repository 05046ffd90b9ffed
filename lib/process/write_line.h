#pragma once

#include <string_view>

namespace sdp {

/// Writes a line on stderr at once; on a terminal in place of a progress line that may be drawn there. For a
/// process that ends now. Async-signal-safe.
void write_line(std::string_view text);

}  // namespace sdp
