#pragma once

// Warnings of the subcommands on standard error.

#include <cstdio>
#include <string>
#include <vector>

namespace sdp {

/// Prints the warnings about a spec (LoadedSpec::warnings).
inline void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
}

}  // namespace sdp
