#pragma once

// How many cores this process may use, alone or beside others. Free of LibTorch.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sdp {

/// Cores for the calling thread and those it starts: its affinity mask (taskset, SLURM, cpusets), or the
/// quota of its cgroup (containers), rounded up, where that is less. At least 1.
int available_cores();

/// The quota of a group of processes.
struct CoreQuota {
  int cores = 0;
  std::string group;  ///< path of the cgroup that has it
};

/// The least `cpu.max` of a cgroup of version 2 and its ancestors, in cores, rounded up; nothing where none
/// is set. `mount`: where the cgroups are mounted, `group`: the path of one below it.
std::optional<CoreQuota> quota_cores(const std::filesystem::path& mount, const std::string& group);

/// What one process says of itself, so that those of one host can divide its cores.
struct CoreClaim {
  std::string host;       ///< the same for all processes of a host, and for no others
  std::vector<int> cpus;  ///< its affinity mask
  std::optional<CoreQuota> quota = {};
  int omp_num_threads = 0;  ///< OMP_NUM_THREADS (the first number of a list); 0 where it is not set
};
CoreClaim own_claim();
std::string to_text(const CoreClaim& claim);
CoreClaim claim_from(const std::string& text);

/// How many threads each process should have: OMP_NUM_THREADS where it is set; else its cores, those that it
/// shares divided by the processes of the host that may use them (a launcher may have bound each to its own),
/// at most its share of the quota, at least 1.
std::vector<int> threads_of(const std::vector<CoreClaim>& claims);

}  // namespace sdp
