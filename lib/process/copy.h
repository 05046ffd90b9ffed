#pragma once

// Starts this program again as child processes.

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace sdp {

/// How a child process is started.
struct CopyOptions {
  const std::vector<std::string>& arguments;  ///< argv; the first entry is the program's name
  /// "NAME=value" entries; unset: this process's environment.
  std::optional<std::vector<std::string>> environment = {};
  int output = -1;  ///< descriptor for stdout and stderr; -1: those of this process
  const sigset_t& signal_mask;
};

/// Starts the running executable again and returns the child's process id. The child has its own process
/// group, so that a terminal's Ctrl-C does not reach it in addition to forwarded signals. Its stdin is empty,
/// and the kernel kills it if this process is killed. Throws std::system_error if the child cannot be
/// started; if only the executable cannot be run, the child prints an error and exits with 127.
pid_t start_copy(const CopyOptions& options);

}  // namespace sdp
