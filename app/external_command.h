#pragma once

// Commands that are programs of their own, as those of git: `sdp-train report ...` starts sdp-train-report.

#include <string>
#include <vector>

namespace sdp {

/// Replaces this program by sdp-train-NAME, which stands next to it or in ../libexec/sdp-train, with these
/// arguments and this program's path in SDP_TRAIN. Returns only if there is no such program: an error that
/// says what to install is printed then, and the result is the exit code.
int external_command(const std::string& name, std::vector<std::string> arguments);

}  // namespace sdp
