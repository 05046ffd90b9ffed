#pragma once

#include <string>
#include <vector>

namespace sdp {

/// Names the network in Python, FILE.py:CLASS, for the processes that a command starts.
inline constexpr const char* kNetworkVariable = "SDP_NETWORK";

/// Runs the command that the arguments name, and returns the program's exit code. `arguments`: argv.
/// `self`: how this process was started, for the copies of it that --nproc starts; argv if it is the program.
int run_command_line(std::vector<std::string> arguments, std::vector<std::string> self);

}  // namespace sdp
