// How the processes of a host divide its cores and devices.

#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "catch.h"
#include "comm/cores.h"
#include "comm/shared_devices.h"
#include "helper_process.h"
#include "spec/json_fields.h"

using Catch::Matchers::Contains;

namespace sdp {
namespace {

constexpr const char* kFirst = "0000:3b:00.0";
constexpr const char* kSecond = "0000:5e:00.0";

/// available_cores() in a thread that may use only the first `count` of this thread's cores.
int cores_when_restricted_to(int count) {
  cpu_set_t all{}, some{};
  REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < count; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &some);
  int cores = -1;
  std::thread([&] {
    if (sched_setaffinity(0, sizeof(some), &some) == 0) cores = available_cores();
  }).join();
  return cores;
}

}  // namespace

TEST_CASE("available cores follow the affinity mask") {
  const int cores = available_cores();
  CHECK(cores >= 1);
  CHECK(cores <= static_cast<int>(std::thread::hardware_concurrency()));
  CHECK(cores_when_restricted_to(1) == 1);
  CHECK(cores_when_restricted_to(2) == std::min(2, cores));
  CHECK(available_cores() == cores);
}

TEST_CASE("cores are busy when threads run on all of them") {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i)
    threads.emplace_back([&] {
      while (!done) {
      }
    });
  CHECK(cores_are_busy());
  done = true;
  for (std::thread& thread : threads)
    thread.join();
}

TEST_CASE("the quota of a cgroup, of either version, is the least of its ancestors'") {
  const TempFolder mount;
  const auto check = [&](std::optional<double> expected, const std::vector<std::string>& groups) {
    for (const std::string& group : groups) {
      INFO(group);
      const auto found = quota_cores(mount.path(), group);
      CHECK((found ? std::optional(found->cores) : std::nullopt) == expected);
    }
  };
  check({}, {"/", "", "/none/of/these"});
  mount.write("job/cpu.max", "max 100000\n");
  check({}, {"/job"});
  mount.write("job/step/cpu.max", "250000 100000\n");
  check(2.5, {"/job/step", "/job/step/task"});
  CHECK(quota_cores(mount.path(), "/job/step/task")->group == mount.path() / "job/step");
  mount.write("job/step/task/cpu.max", "800000 100000\n");
  check(2.5, {"/job/step/task"});
  mount.write("job/step/task/cpu.max", "5000 100000\n");
  check(0.05, {"/job/step/task"});
  check({}, {"/job"});
  mount.write("cpu.max", "200000 100000\n");
  check(2, {"/", "/../elsewhere", "/job/step"});
  mount.write("cpu.max", "nonsense\n");
  check({}, {"/"});
  for (const char* name : {"docker/cpu.cfs_period_us", "docker/a/cpu.cfs_period_us"})
    mount.write(name, "100000");
  mount.write("docker/cpu.cfs_quota_us", "-1");
  check({}, {"/docker"});
  mount.write("docker/a/cpu.cfs_quota_us", "50000");
  check(0.5, {"/docker/a"});
  mount.write("docker/cpu.cfs_quota_us", "30000");
  check(0.3, {"/docker/a"});
}

TEST_CASE("cores and quotas that processes share are divided; OMP_NUM_THREADS takes precedence over both") {
  const auto claim = [](std::vector<int> cpus, std::optional<CoreQuota> quota = {}, int omp_num_threads = 0) {
    return CoreClaim{
        .host = "a", .cpus = std::move(cpus), .quota = std::move(quota), .omp_num_threads = omp_num_threads};
  };
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  const CoreClaim all = claim(eight), low = claim({0, 1, 2, 3}), high = claim({4, 5, 6, 7});
  const auto with_quota = [&](double cores, const char* group = "job") {
    return claim(eight, CoreQuota{cores, group});
  };
  const std::vector<std::pair<std::vector<CoreClaim>, std::vector<int>>> cases = {
      {{all}, {8}},
      {{all, all}, {4, 4}},
      {{all, all, all}, {2, 2, 2}},
      // Bound by the launcher, each to its own cores; then two of them to the same ones.
      {{low, high}, {4, 4}},
      {{low, high, high}, {4, 2, 2}},
      {{all, low}, {6, 2}},
      {std::vector(6, claim({0, 1, 2})), std::vector(6, 1)},
      // Cores of other hosts have the same numbers but are not shared.
      {{all, {.host = "b", .cpus = {0, 1}}}, {8, 2}},
      {{with_quota(3, "one"), with_quota(2, "other")}, {3, 2}},
      {{with_quota(6), with_quota(6)}, {3, 3}},
      {{with_quota(5), with_quota(5)}, {2, 2}},
      {{with_quota(1), with_quota(1)}, {1, 1}},
      {{with_quota(0.5)}, {1}},
      {{with_quota(1.9)}, {1}},
      {{claim(eight, CoreQuota{2, "job"}, 5), with_quota(2)}, {5, 1}}};
  for (const auto& [claims, threads] : cases)
    CHECK(threads_of(claims) == threads);
}

TEST_CASE("the claim of this process has its cores, also after sending") {
  const CoreClaim own = struct_of<CoreClaim>(json_of(own_claim()));
  CHECK_FALSE(own.host.empty());
  const auto cpus = static_cast<double>(own.cpus.size());
  CHECK(std::max(1, static_cast<int>(std::min(cpus, own.quota ? own.quota->cores : cpus))) ==
        available_cores());
}

TEST_CASE("processes that OpenMP binds to the same cores, and different numbers of threads, are warned of") {
  const CoreClaim bound = {.host = "a", .cpus = {0, 1, 2, 3}, .omp_binds = true};
  const CoreClaim all = {.host = "a", .cpus = {0, 1, 2, 3}};
  const std::vector<std::vector<CoreClaim>> fine = {
      {bound},
      {bound, {.host = "b", .cpus = {0, 1, 2, 3}, .omp_binds = true}},
      {bound, {.host = "a", .cpus = {4, 5, 6, 7}, .omp_binds = true}},
      {all, all}};
  for (const std::vector<CoreClaim>& claims : fine)
    CHECK(warnings_about(claims).empty());
  const std::vector<std::string> same = warnings_about({bound, bound, bound});
  REQUIRE(same.size() == 1);
  CHECK(contains(same[0], "OMP_PROC_BIND"));
  CHECK(warnings_about({all, {.host = "b", .cpus = {0, 1}}}).size() == 1);
}

TEST_CASE("the claim has the first number of OMP_NUM_THREADS") {
  const char* const before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  for (const auto& [value, threads] : {std::pair("3", 3), {"4,2", 4}, {"none", 0}}) {
    setenv("OMP_NUM_THREADS", value, 1);
    CHECK(own_claim().omp_num_threads == threads);
  }
  // Later tests start processes, which inherit it.
  before ? setenv("OMP_NUM_THREADS", kept.c_str(), 1) : unsetenv("OMP_NUM_THREADS");
}

TEST_CASE("ranks that share a device are named with it and with advice") {
  using Places = std::vector<DevicePlace>;
  for (const Places& fine :
       {Places{}, Places{{"a 1", kFirst}},
        // The same slot on another host, on one of the same name that was booted at another time, and for
        // processes that NCCL_HOSTID distinguishes.
        Places{{"a 1", kFirst}, {"a 1", kSecond}, {"b 2", kFirst}, {"b 2", kSecond}, {"a 2", kFirst}},
        Places{{"0", kFirst}, {"1", kFirst}, {"2", kFirst}}})
    CHECK(refuse_shared_devices(fine).empty());
  const std::string one =
      refuse_shared_devices({{"a 1", kFirst}, {"b 2", kFirst}, {"a 1", kFirst}, {"a 1", kSecond}});
  CHECK_THAT(one, Contains("0 and 2") && Contains(kFirst) && !Contains("of b") && !Contains(kSecond));
  Places many;
  for (int rank = 0; rank < 20; ++rank)
    many.push_back({"host" + std::to_string(rank / 2), kFirst});
  CHECK_THAT(refuse_shared_devices(many), Contains("6 and 7") && Contains("host3") && !Contains("host4"));
}

TEST_CASE("every rank learns the places of all ranks") {
  c10d::HashStore store;
  const std::vector<DevicePlace> places = {{"host 0", kSecond}, {"host 1", kFirst}, {"host 2", kSecond}};
  for (const std::vector<DevicePlace>& seen : test::in_parallel(
           3, [&](int rank) { return gather_places(store, rank, 3, places[static_cast<size_t>(rank)]); }))
    CHECK((seen == places));
}

}  // namespace sdp
