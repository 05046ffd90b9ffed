#include "comm/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>

namespace sdp {
namespace {

constexpr int kMostCpus = 1 << 20;

/// The affinity mask of the calling thread. The kernel rejects a set that is smaller than its own mask.
std::vector<int> affinity() {
  const auto release = [](cpu_set_t* set) { CPU_FREE(set); };
  for (int cpus = CPU_SETSIZE; cpus <= kMostCpus; cpus *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const std::unique_ptr<cpu_set_t, decltype(release)> set(CPU_ALLOC(cpus), release);
    if (!set) break;
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      std::vector<int> found;
      for (int cpu = 0; cpu < cpus; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set.get())) found.push_back(cpu);
      return found;
    }
    if (errno != EINVAL) break;
  }
  std::vector<int> all(std::max(1U, std::thread::hardware_concurrency()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int omp_num_threads() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  return value == nullptr ? 0 : std::clamp(std::atoi(value), 0, kMostCpus);
}

/// Path of this process's version 2 cgroup, or "".
std::string own_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  return "";
}

}  // namespace

std::optional<CoreQuota> quota_cores(const std::filesystem::path& mount, const std::string& group) {
  std::optional<CoreQuota> least;
  const auto limit_by = [&](const std::filesystem::path& folder) {
    std::ifstream file(folder / "cpu.max");
    int64_t quota = 0;  // the file has the word "max" instead of a number if there is no quota
    int64_t period = 0;
    if (!(file >> quota >> period) || quota <= 0 || period <= 0) return;
    const auto cores = static_cast<int>(std::min<int64_t>((quota - 1) / period + 1, kMostCpus));
    if (!least || cores < least->cores) least = {cores, folder.string()};
  };
  std::filesystem::path folder = mount;
  limit_by(folder);
  for (const std::filesystem::path& name : std::filesystem::path(group).relative_path()) {
    if (name == "..") break;  // outside the container's view
    folder /= name;
    limit_by(folder);
  }
  return least;
}

int available_cores() {
  const CoreClaim claim = own_claim();
  const auto cores = static_cast<int>(claim.cpus.size());
  return std::max(1, claim.quota ? std::min(cores, claim.quota->cores) : cores);
}

CoreClaim own_claim() {
  // The kernel's boot id identifies the host; containers on one host have different host names.
  return {.host = first_line_of("/proc/sys/kernel/random/boot_id"),
          .cpus = affinity(),
          .quota = quota_cores("/sys/fs/cgroup", own_cgroup()),
          .omp_num_threads = omp_num_threads()};
}

std::string to_text(const CoreClaim& claim) {
  const CoreQuota quota = claim.quota.value_or(CoreQuota{});
  std::ostringstream text;
  text << claim.host << '\n' << quota.group << '\n' << quota.cores << ' ' << claim.omp_num_threads;
  for (const int cpu : claim.cpus)
    text << ' ' << cpu;
  return text.str();
}

CoreClaim claim_from(const std::string& text) {
  std::istringstream words(text);
  CoreClaim claim;
  CoreQuota quota;
  std::getline(words, claim.host);
  std::getline(words, quota.group);
  words >> quota.cores >> claim.omp_num_threads;
  for (int cpu = 0; words >> cpu;)
    claim.cpus.push_back(cpu);
  if (quota.cores > 0) claim.quota = quota;
  return claim;
}

std::vector<int> threads_of(const std::vector<CoreClaim>& claims) {
  std::map<std::pair<std::string, int>, int> users_of_cpu;
  std::map<std::pair<std::string, std::string>, int> users_of_quota;
  for (const CoreClaim& claim : claims) {
    for (const int cpu : claim.cpus)
      ++users_of_cpu[{claim.host, cpu}];
    if (claim.quota) ++users_of_quota[{claim.host, claim.quota->group}];
  }
  std::vector<int> threads;
  for (const CoreClaim& claim : claims) {
    double cores = 0;
    for (const int cpu : claim.cpus)
      cores += 1.0 / users_of_cpu[{claim.host, cpu}];
    if (claim.quota)
      cores = std::min(
          cores, static_cast<double>(claim.quota->cores) / users_of_quota[{claim.host, claim.quota->group}]);
    constexpr double kRounding = 1e-6;  // three times 1/3 may add up to less than 1
    threads.push_back(claim.omp_num_threads > 0 ? claim.omp_num_threads
                                                : std::max(1, static_cast<int>(cores + kRounding)));
  }
  return threads;
}

}  // namespace sdp
