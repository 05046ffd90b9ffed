#pragma once

// The run folder of several processes, perhaps on several hosts: rank 0 locks it, and all make sure that it
// is the same one before they train for hours.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "telemetry/run_folder.h"

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
};

/// How long a host may take to see a file that another one has made: NFS remembers for up to 30 s that a name
/// was not there.
inline constexpr std::chrono::seconds kVisibleAfter{40};

/// Collective. Rank 0 calls `lock`; its usage and data errors are thrown on every rank. Then every process
/// reads the lock file in its own `folder`. Throws UsageError on every rank that names the hosts which do not
/// see rank 0's, those of rank 0's host at once, others after `visible_after`.
SharedRunFolder share_run_folder(Communicator& comm, const RunFolder& folder, const ProcessPlace& mine,
                                 const std::function<std::unique_ptr<RunLock>()>& lock,
                                 std::chrono::milliseconds visible_after = kVisibleAfter);

}  // namespace sdp
