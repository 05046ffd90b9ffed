#include "comm/cores.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "process/identity.h"

namespace sdp {
namespace {

constexpr int kMostCpus = 1 << 20;

/// A function of a library that is loaded already; null if there is none.
template <class Function>
Function* loaded_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// The cores that OpenMP binds threads to; empty if it does not. The runtime that LibTorch loads binds the
/// first thread to one core before main() begins, but keeps the mask that the process was started with as its
/// places.
std::vector<int> openmp_places() {
  auto* const num_places = loaded_function<int()>("omp_get_num_places");
  auto* const num_procs = loaded_function<int(int)>("omp_get_place_num_procs");
  auto* const proc_ids = loaded_function<void(int, int*)>("omp_get_place_proc_ids");
  std::vector<int> cpus;
  if (!num_places || !num_procs || !proc_ids) return cpus;
  for (int place = 0; place < num_places(); ++place) {
    std::vector<int> ids(static_cast<size_t>(std::max(0, num_procs(place))));
    proc_ids(place, ids.data());
    cpus.insert(cpus.end(), ids.begin(), ids.end());
  }
  std::ranges::sort(cpus);
  cpus.erase(std::ranges::unique(cpus).begin(), cpus.end());
  return cpus;
}

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

int omp_num_threads() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  return value == nullptr ? 0 : std::clamp(std::atoi(value), 0, kMostCpus);
}

/// The quota of this process's cgroup. Version 1 has a hierarchy for each list of controllers.
std::optional<CoreQuota> own_quota() {
  std::optional<CoreQuota> least;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // NUMBER:CONTROLLERS:PATH
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_version_1 = ("," + controllers + ",").find(",cpu,") != std::string::npos;
    if (!controllers.empty() && !is_version_1) continue;
    const std::optional<CoreQuota> quota =
        quota_cores(is_version_1 ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup", line.substr(second + 1));
    if (quota && (!least || quota->cores < least->cores)) least = quota;
  }
  return least;
}

/// The quota that a folder sets, in cores; 0 if none.
double cores_set_in(const std::filesystem::path& folder) {
  double quota_us = 0;  // stays 0 at the word "max"; -1: none
  double period_us = 0;
  std::ifstream(folder / "cpu.max") >> quota_us >> period_us;
  if (quota_us <= 0) {
    std::ifstream(folder / "cpu.cfs_quota_us") >> quota_us;
    std::ifstream(folder / "cpu.cfs_period_us") >> period_us;
  }
  return quota_us > 0 && period_us > 0 ? quota_us / period_us : 0;
}

}  // namespace

std::optional<CoreQuota> quota_cores(const std::filesystem::path& mount, const std::string& group) {
  std::optional<CoreQuota> least;
  const auto limit_by = [&](const std::filesystem::path& folder) {
    const double cores = cores_set_in(folder);
    if (cores > 0 && (!least || cores < least->cores)) least = {cores, folder.string()};
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
  return std::max(1, claim.quota ? std::min(cores, static_cast<int>(claim.quota->cores)) : cores);
}

bool cores_are_busy() {
  std::vector<int> others;
  for (int sample = 0; sample < 5; ++sample) {
    std::ifstream loads("/proc/loadavg");  // 0.20 0.18 0.12 RUNNABLE/ALL LAST_PID
    std::string average;
    int runnable = 1;
    loads >> average >> average >> average >> runnable;
    others.push_back(runnable - 1);  // without this thread
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::sort(others.begin(), others.end());
  return 2 * others[others.size() / 2] >= static_cast<int>(std::thread::hardware_concurrency());
}

CoreClaim own_claim() {
  const std::vector<int> places = openmp_places();
  // The kernel's boot id identifies the host; containers on one host have different host names.
  return {.host = boot_id(),
          .cpus = places.empty() ? affinity() : places,
          .quota = own_quota(),
          .omp_num_threads = omp_num_threads(),
          .omp_binds = !places.empty()};
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
      cores = std::min(cores, claim.quota->cores / users_of_quota[{claim.host, claim.quota->group}]);
    constexpr double kRounding = 1e-6;  // three times 1/3 may add up to less than 1
    threads.push_back(claim.omp_num_threads > 0 ? claim.omp_num_threads
                                                : std::max(1, static_cast<int>(cores + kRounding)));
  }
  return threads;
}

std::vector<std::string> warnings_about(const std::vector<CoreClaim>& claims) {
  std::vector<std::string> warnings;
  const std::vector<int> threads = threads_of(claims);
  if (const auto [fewest, most] = std::minmax_element(threads.begin(), threads.end()); *fewest < *most)
    warnings.push_back("processes compute with " + std::to_string(*fewest) + " to " + std::to_string(*most) +
                       " threads, because their hosts have different numbers of cores available. With other "
                       "numbers of threads "
                       "results agree only up to rounding; OMP_NUM_THREADS sets the same number for all");
  std::set<std::pair<std::string, int>> bound;
  for (const CoreClaim& claim : claims) {
    if (!claim.omp_binds || claim.cpus.empty() || bound.emplace(claim.host, claim.cpus.front()).second)
      continue;
    warnings.push_back(
        "OMP_PROC_BIND or OMP_PLACES binds the threads of several processes of a host to the same cores, "
        "from core " +
        std::to_string(claim.cpus.front()) +
        " on, which they then share. Unset it, or let the launcher give each process its own cores");
    break;
  }
  return warnings;
}

}  // namespace sdp
