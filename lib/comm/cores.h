#pragma once

// How many cores this process may use, including when processes share a host. Does not depend on LibTorch.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sdp {

/// Number of cores available to the calling thread and the threads it starts: the size of its affinity mask
/// (taskset, SLURM, cpusets) or the quota of its cgroup (containers), rounded up, whichever is less. At
/// least 1.
int available_cores();

/// The core quota of a group of processes.
struct CoreQuota {
  int cores = 0;
  std::string group;  ///< path of the cgroup that sets the quota
};

/// The smallest `cpu.max` of a version 2 cgroup and its ancestors, in cores, rounded up; nullopt if none is
/// set. `mount`: where the cgroups are mounted; `group`: the cgroup's path below `mount`.
std::optional<CoreQuota> quota_cores(const std::filesystem::path& mount, const std::string& group);

/// What one process reports about itself, so that the processes of a host can divide its cores.
struct CoreClaim {
  std::string host;       ///< the same for all processes of a host, and for no others
  std::vector<int> cpus;  ///< its affinity mask
  std::optional<CoreQuota> quota = {};
  int omp_num_threads = 0;  ///< OMP_NUM_THREADS (the first number of a list); 0 if it is not set
};
CoreClaim own_claim();
std::string to_text(const CoreClaim& claim);
CoreClaim claim_from(const std::string& text);

/// How many threads each process should have: OMP_NUM_THREADS if it is set. Otherwise the sum over its cores
/// of one divided by the number of the host's processes that may use the core (a launcher may have bound each
/// process to separate cores), at most its share of the quota and at least 1.
std::vector<int> threads_of(const std::vector<CoreClaim>& claims);

}  // namespace sdp
