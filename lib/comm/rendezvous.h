#pragma once

// The rendezvous: where the processes of a job exchange their addresses. Internal to comm/.

#include <filesystem>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "comm/communicator.h"
#include "comm/ranks.h"
#include "comm/sockets.h"

namespace sdp {

// Processes that share a folder meet through a file there, which only their user can read, and not at a port
// that others can reach.

/// The file of the store through which processes meet in the folder.
std::filesystem::path store_file(const std::filesystem::path& folder);

/// Rank 0's announcement of a new store file: a file beside it that is locked while this object exists.
/// Without the lock, it is left over from processes that were killed.
class Announcement {
 public:
  /// Creates the folder if it is missing and announces an empty store file. Throws UsageError if there is an
  /// announcement already, and DataError if the folder cannot be written.
  explicit Announcement(const std::filesystem::path& folder);
  ~Announcement();
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

  /// Why files in the folder cannot be locked; "" if they can. The announcement says the same.
  const std::string& problem() const { return problem_; }

 private:
  std::filesystem::path path_;
  Descriptor lock_;
  std::string problem_;
};

/// Waits for rank 0's announcement. Returns false if files in the folder cannot be locked. Throws
/// std::runtime_error at the deadline.
bool await_announcement(const std::filesystem::path& folder, Deadline deadline);

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

// A TCP connection between every two processes that share a store.

struct Meeting {
  int rank = 0;
  int size = 1;
  /// Rank 0's host, which determines the address that this host announces; empty if all ranks are on this
  /// host.
  std::string master = {};
  Deadline deadline = {};
};

/// Returns a connection to every other process, [W], with a closed socket for this rank. Each process
/// connects to the lower ranks and accepts connections from the higher ranks. A listener sends every client a
/// number that it uses once, and turns it away unless it answers within 5 s with its rank and an HMAC of
/// both, whose key is a secret in the store. Many strangers may connect at a time without delaying the ranks.
/// Throws std::runtime_error, which names the missing ranks, or the store's errors.
std::vector<Descriptor> meet_peers(c10d::Store& store, const Meeting& meeting);

}  // namespace sdp
