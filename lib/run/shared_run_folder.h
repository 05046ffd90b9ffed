#pragma once

// The run folder shared by the processes of a run, possibly on several hosts. Rank 0 locks it; all processes
// check that they see the same folder before training starts.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "run/run_folder.h"

namespace sdp {

/// Where a process runs.
struct ProcessPlace {
  std::string host;
  int threads = 0;
};

struct SharedRunFolder {
  RunFolder folder;
  std::unique_ptr<RunLock> lock;        ///< rank 0 only
  std::vector<ProcessPlace> processes;  ///< [W], by rank

  /// Call before writing to the folder: throws if another run has taken it over. Does nothing above rank 0.
  void check_lock() const {
    if (lock) lock->check();
  }
  int threads(int rank) const { return processes.at(static_cast<size_t>(rank)).threads; }
};

/// How long a host may take to see a file created by another host: NFS clients cache for up to 30 s that a
/// name does not exist.
inline constexpr std::chrono::seconds kVisibleAfter{40};

/// Collective. Rank 0 calls `lock`; its usage and data errors are thrown on every rank. Every process then
/// reads the lock file in its own `folder`. Throws UsageError on every rank, naming the hosts that do not see
/// rank 0's folder: immediately for rank 0's own host, after `visible_after` for others.
SharedRunFolder share_run_folder(Communicator& comm, const RunFolder& folder, const ProcessPlace& mine,
                                 const std::function<std::unique_ptr<RunLock>()>& lock,
                                 std::chrono::milliseconds visible_after = kVisibleAfter);

}  // namespace sdp
