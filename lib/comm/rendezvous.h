#pragma once

// The rendezvous: where the processes of a job exchange their addresses. Internal to comm/.

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
  /// Where the processes meet: a file, or rank 0's host and port.
  std::string place() const;
};

/// Returns the store through which the processes of the job find each other. Throws UsageError if rank 0's
/// port is taken, if another job has its store there, if two processes have the same rank, or if hosts have
/// different numbers of processes although Ranks::equal_hosts is set. Other errors are c10d's.
c10::intrusive_ptr<c10d::Store> meet(const Rendezvous& rendezvous);

/// Throws UsageError if c10d's message says that rank 0's port is taken.
void check_port(const Rendezvous& rendezvous, const std::string& reason);

}  // namespace sdp
