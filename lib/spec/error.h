#pragma once

// Errors that a user can cause, each with the program's exit code. A broken invariant of the program itself
// is a std::logic_error (exit code 1).

#include <stdexcept>
#include <string>

namespace sdp {

enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,      ///< spec or command line
  kData = 3,       ///< data set or checkpoint
  kPeerLost = 4,   ///< another process has ended or does not respond
  kPreempted = 75  ///< stopped by a signal after a checkpoint was saved
};

/// An error whose message is meant for the user: what is wrong, where, what was expected, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::kData, message) {}
};

class PeerLostError : public Error {
 public:
  explicit PeerLostError(const std::string& message) : Error(ExitCode::kPeerLost, message) {}
};

}  // namespace sdp
