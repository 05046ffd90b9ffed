#pragma once

#include <cstdio>
#include <string>

#include "telemetry/progress_line.h"

namespace sdp {

/// Prints a warning about a damaged image, even while a progress line is drawn.
inline void print_skipped(ProgressLine& line, const std::string& message) {
  line.clear();
  std::fprintf(stderr, "warning: skipped: %s\n", message.c_str());
}

}  // namespace sdp
