#pragma once

#include <cstdio>
#include <string>

#include "telemetry/progress_line.h"

namespace sdp {

/// Tells of a damaged image, while a line of progress may be drawn.
inline void print_skipped(ProgressLine& line, const std::string& message) {
  line.clear();
  std::fprintf(stderr, "warning: skipped: %s\n", message.c_str());
}

}  // namespace sdp
