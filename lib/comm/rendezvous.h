#pragma once

// The rendezvous: where the processes of a job exchange their addresses. Internal to comm/.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/meeting_file.h"
#include "comm/ranks.h"

namespace sdp {

struct Rendezvous {
  Rendezvous(const Ranks& of_ranks, const ConnectOptions& with);

  const Ranks& ranks;
  const ConnectOptions& options;
  std::string file;                            ///< of the store; empty if the processes meet over TCP
  std::unique_ptr<Announcement> announcement;  ///< rank 0's, if it has announced `file`

  /// Whether this process serves the store, which ends with it.
  bool serves() const;
  /// Where the processes meet: a file, or rank 0's host and port.
  std::string place() const;
};

/// Returns the store through which the processes of the job find each other. Without a file and where the
/// folder's locks do not work, it is reached over TCP. Throws UsageError if rank 0's address is unknown, its
/// port is taken, if another job has its store there, if two processes have the same rank, or if hosts have
/// different numbers of processes although Ranks::equal_hosts is set. Other errors are c10d's.
c10::intrusive_ptr<c10d::Store> meet(Rendezvous& rendezvous);

/// Throws UsageError if c10d's message says that rank 0's port is taken.
void check_port(const Rendezvous& rendezvous, const std::string& reason);

}  // namespace sdp
