#pragma once

// Warnings of the subcommands on standard error.

#include <cstdio>
#include <string>
#include <vector>

#include "telemetry/progress_line.h"

namespace sdp {

/// Prints the warnings about a spec (LoadedSpec::warnings).
inline void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
}

/// Prints a warning about a damaged image, even while a progress line is drawn.
inline void print_skipped(ProgressLine& line, const std::string& message) {
  line.clear();
  std::fprintf(stderr, "warning: skipped: %s\n", message.c_str());
}

}  // namespace sdp
