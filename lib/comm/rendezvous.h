#pragma once

// Where the processes of a job exchange their addresses. Internal to comm/.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

#include "comm/ranks.h"

namespace sdp {

struct Rendezvous {
  const Ranks& ranks;
  std::string job;  ///< see ConnectOptions
  std::chrono::milliseconds timeout = {};

  /// Whether this process serves the store, which ends with it.
  bool serves() const;
  /// Where that is: a file, or rank 0's host and port.
  std::string place() const;
};

/// The store in which all processes of the job have found each other. Throws UsageError when rank 0's port is
/// taken, when another job has its store there, when two processes have the same rank, or when hosts were to
/// have as many processes each (Ranks::equal_hosts) and have not; else c10d's errors.
c10::intrusive_ptr<c10d::Store> meet(const Rendezvous& rendezvous);

/// Throws UsageError where c10d's message says that rank 0's port is taken.
void check_port(const Rendezvous& rendezvous, const std::string& reason);

}  // namespace sdp
