#pragma once

// How many cores this process may use, including when processes share a host. Does not depend on LibTorch.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sdp {

/// Number of cores available to the calling thread and the threads it starts: the size of its affinity mask
/// (taskset, SLURM, cpusets) or the quota of its cgroup (containers), rounded down, whichever is less. At
/// least 1.
int available_cores();

/// Whether threads of other processes now run on half of the host's cores or more. Takes 50 ms.
bool cores_are_busy();

/// The core quota of a group of processes.
struct CoreQuota {
  double cores = 0;
  std::string group;  ///< path of the cgroup that sets the quota

  template <class Visitor>
  static void fields(Visitor& field) {
    field("cores", &CoreQuota::cores);
    field("group", &CoreQuota::group);
  }
};

/// The smallest quota of a cgroup and its ancestors: `cpu.max` (version 2), or `cpu.cfs_quota_us` and
/// `cpu.cfs_period_us` (version 1); nullopt if none is set. `mount`: where the cgroups of the CPU controller
/// are mounted; `group`: the cgroup's path below `mount`.
std::optional<CoreQuota> quota_cores(const std::filesystem::path& mount, const std::string& group);

/// What one process reports about itself, so that the processes of a host can divide its cores.
struct CoreClaim {
  std::string host;       ///< the same for all processes of a host, and for no others
  std::vector<int> cpus;  ///< its affinity mask, as it was before OpenMP bound its threads
  std::optional<CoreQuota> quota = {};
  int omp_num_threads = 0;  ///< OMP_NUM_THREADS (the first number of a list); 0 if it is not set
  bool omp_binds = false;   ///< OpenMP binds each thread to a core of its own (OMP_PROC_BIND, OMP_PLACES)

  template <class Visitor>
  static void fields(Visitor& field) {
    field("host", &CoreClaim::host);
    field("cpus", &CoreClaim::cpus);
    field("quota", &CoreClaim::quota);
    field("omp_num_threads", &CoreClaim::omp_num_threads);
    field("omp_binds", &CoreClaim::omp_binds);
  }
};
CoreClaim own_claim();

/// How many threads each process should have: OMP_NUM_THREADS if it is set. Otherwise the sum over its cores
/// of one divided by the number of the host's processes that may use the core (a launcher may have bound each
/// process to separate cores), at most its share of the quota and at least 1.
std::vector<int> threads_of(const std::vector<CoreClaim>& claims);

/// What to warn of: different numbers of threads, and processes whose threads OpenMP binds to the same cores.
std::vector<std::string> warnings_about(const std::vector<CoreClaim>& claims);

}  // namespace sdp
