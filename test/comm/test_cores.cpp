#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "catch.h"
#include "comm/cores.h"
#include "temp_folder.h"

namespace sdp {
namespace {

/// available_cores() in a thread that may use only the first `count` of this thread's cores.
int cores_when_restricted_to(int count) {
  cpu_set_t all;
  CPU_ZERO(&all);
  REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
  cpu_set_t some;
  CPU_ZERO(&some);
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
  const auto quota = [&](const std::string& group) -> std::optional<double> {
    const auto found = quota_cores(mount.path(), group);
    return found ? std::optional(found->cores) : std::nullopt;
  };
  for (const char* const none : {"/", "", "/none/of/these"})
    CHECK_FALSE(quota(none));
  mount.write("job/cpu.max", "max 100000\n");
  CHECK_FALSE(quota("/job"));
  mount.write("job/step/cpu.max", "250000 100000\n");
  CHECK(quota("/job/step") == 2.5);
  CHECK(quota("/job/step/task") == 2.5);
  CHECK(quota_cores(mount.path(), "/job/step/task")->group == mount.path() / "job/step");
  mount.write("job/step/task/cpu.max", "800000 100000\n");
  CHECK(quota("/job/step/task") == 2.5);
  mount.write("job/step/task/cpu.max", "5000 100000\n");
  CHECK(quota("/job/step/task") == 0.05);
  CHECK_FALSE(quota("/job"));
  mount.write("cpu.max", "200000 100000\n");
  for (const char* const group : {"/", "/../elsewhere", "/job/step"})
    CHECK(quota(group) == 2);
  mount.write("cpu.max", "nonsense\n");
  CHECK_FALSE(quota("/"));

  const auto write_version_1 = [&](const std::string& group, const std::string& quota_us) {
    mount.write(group + "/cpu.cfs_quota_us", quota_us);
    mount.write(group + "/cpu.cfs_period_us", "100000");
  };
  write_version_1("docker", "-1");
  CHECK_FALSE(quota("/docker"));
  write_version_1("docker/a", "50000");
  CHECK(quota("/docker/a") == 0.5);
  write_version_1("docker", "30000");
  CHECK(quota("/docker/a") == 0.3);
}

TEST_CASE("only cores that several processes share are divided") {
  const CoreClaim all = {.host = "a", .cpus = {0, 1, 2, 3, 4, 5, 6, 7}};
  CHECK(threads_of({all}) == std::vector<int>{8});
  CHECK(threads_of({all, all}) == std::vector<int>{4, 4});
  CHECK(threads_of({all, all, all}) == std::vector<int>{2, 2, 2});
  // Bound by the launcher, each to its own cores; then two of them to the same ones.
  const CoreClaim low = {.host = "a", .cpus = {0, 1, 2, 3}}, high = {.host = "a", .cpus = {4, 5, 6, 7}};
  CHECK(threads_of({low, high}) == std::vector<int>{4, 4});
  CHECK(threads_of({low, high, high}) == std::vector<int>{4, 2, 2});
  CHECK(threads_of({all, low}) == std::vector<int>{6, 2});
  const std::vector<CoreClaim> six(6, {.host = "a", .cpus = {0, 1, 2}});
  CHECK(threads_of(six) == std::vector<int>(6, 1));
  // Cores of other hosts have the same numbers but are not shared.
  CHECK(threads_of({all, {.host = "b", .cpus = {0, 1}}}) == std::vector<int>{8, 2});
}

TEST_CASE(
    "a quota is divided among the processes that share it; OMP_NUM_THREADS takes precedence over both") {
  const auto with_quota = [](double cores, const std::string& group = "job") {
    return CoreClaim{.host = "a", .cpus = {0, 1, 2, 3, 4, 5, 6, 7}, .quota = CoreQuota{cores, group}};
  };
  CHECK(threads_of({with_quota(3, "one"), with_quota(2, "other")}) == std::vector<int>{3, 2});
  for (const auto& [cores, threads] : std::map<double, int>{{6, 3}, {5, 2}, {1, 1}})
    CHECK(threads_of({with_quota(cores), with_quota(cores)}) == std::vector<int>{threads, threads});
  for (const double less_than_two : {0.5, 1.9})
    CHECK(threads_of({with_quota(less_than_two)}) == std::vector<int>{1});
  CoreClaim asked = with_quota(2);
  asked.omp_num_threads = 5;
  CHECK(threads_of({asked, with_quota(2)}) == std::vector<int>{5, 1});
}

TEST_CASE("a claim is unchanged after sending, and that of this process has its cores") {
  CoreClaim claim = {.host = "a host",
                     .cpus = {0, 3, 200},
                     .quota = CoreQuota{2.5, "/a group"},
                     .omp_num_threads = 7,
                     .omp_binds = true};
  const CoreClaim read = claim_from(to_text(claim));
  CHECK(read.host == claim.host);
  CHECK(read.cpus == claim.cpus);
  REQUIRE(read.quota);
  CHECK(read.quota->cores == 2.5);
  CHECK(read.quota->group == "/a group");
  CHECK(read.omp_num_threads == 7);
  CHECK(read.omp_binds);
  claim.quota.reset();
  CHECK_FALSE(claim_from(to_text(claim)).quota);
  const CoreClaim own = own_claim();
  CHECK_FALSE(own.host.empty());
  const auto cpus = static_cast<double>(own.cpus.size());
  CHECK(std::max(1, static_cast<int>(std::min(cpus, own.quota ? own.quota->cores : cpus))) ==
        available_cores());
}

TEST_CASE("processes that OpenMP binds to the same cores, and different numbers of threads, are warned of") {
  const CoreClaim bound = {.host = "a", .cpus = {0, 1, 2, 3}, .omp_binds = true};
  CHECK(warnings_about({bound}).empty());
  CHECK(warnings_about({bound, {.host = "b", .cpus = {0, 1, 2, 3}, .omp_binds = true}}).empty());
  CHECK(warnings_about({bound, {.host = "a", .cpus = {4, 5, 6, 7}, .omp_binds = true}}).empty());
  const std::vector<std::string> same = warnings_about({bound, bound, bound});
  REQUIRE(same.size() == 1);
  CHECK(same[0].find("OMP_PROC_BIND") != std::string::npos);
  const CoreClaim all = {.host = "a", .cpus = {0, 1, 2, 3}};
  CHECK(warnings_about({all, all}).empty());
  REQUIRE(warnings_about({all, {.host = "b", .cpus = {0, 1}}}).size() == 1);
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

}  // namespace sdp
