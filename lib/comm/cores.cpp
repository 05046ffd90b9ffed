#include "comm/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <memory>
#include <thread>

namespace sdp {
namespace {

constexpr int kMostCpus = 1 << 20;

/// Cores in the affinity mask of the calling thread. The kernel refuses a set that is smaller than its own.
int affinity_cores() {
  const auto release = [](cpu_set_t* set) { CPU_FREE(set); };
  for (int cpus = CPU_SETSIZE; cpus <= kMostCpus; cpus *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const std::unique_ptr<cpu_set_t, decltype(release)> set(CPU_ALLOC(cpus), release);
    if (!set) break;
    if (sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

/// Path of this process's cgroup of version 2, or "".
std::string own_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  return "";
}

}  // namespace

std::optional<int> quota_cores(const std::filesystem::path& mount, const std::string& group) {
  std::optional<int> least;
  const auto limit_by = [&](const std::filesystem::path& folder) {
    std::ifstream file(folder / "cpu.max");
    int64_t quota = 0;  // the word "max", which is no number, where there is none
    int64_t period = 0;
    if (!(file >> quota >> period) || quota <= 0 || period <= 0) return;
    const auto cores = static_cast<int>(std::min<int64_t>((quota - 1) / period + 1, kMostCpus));
    least = std::min(cores, least.value_or(cores));
  };
  std::filesystem::path folder = mount;
  limit_by(folder);
  for (const std::filesystem::path& name : std::filesystem::path(group).relative_path()) {
    if (name == "..") break;  // outside what a container sees
    folder /= name;
    limit_by(folder);
  }
  return least;
}

int available_cores() {
  const int cores = affinity_cores();
  return std::max(1, std::min(cores, quota_cores("/sys/fs/cgroup", own_cgroup()).value_or(cores)));
}

}  // namespace sdp
