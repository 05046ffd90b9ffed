#pragma once

// Copies of this program as child processes.

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace sdp {

/// What a copy starts with.
struct CopyOptions {
  const std::vector<std::string>& arguments;  ///< argv, its first entry the program's name
  /// "NAME=value" each; unset: this process's own.
  std::optional<std::vector<std::string>> environment = {};
  int output = -1;  ///< descriptor for stdout and stderr; -1: this process's own
  const sigset_t& signal_mask;
};

/// Starts the running executable anew and returns the child's id. It is in a process group of its own, so
/// that a terminal's Ctrl-C does not reach it besides what is passed on; it reads nothing from stdin; the
/// kernel kills it when this process is killed. Throws std::system_error when it cannot be started; where
/// only the executable cannot, the child says so and ends with 127.
pid_t start_copy(const CopyOptions& options);

}  // namespace sdp
