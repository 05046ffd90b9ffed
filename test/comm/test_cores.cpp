#include <sched.h>

#include <fstream>
#include <thread>

#include "catch.h"
#include "comm/cores.h"
#include "helper_process.h"

namespace sdp {
namespace {

/// available_cores() in a thread that may use the first `count` of the cores that this one may use.
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

void write_limit(const std::filesystem::path& folder, const std::string& limit) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "cpu.max") << limit << "\n";
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

TEST_CASE("the quota of a cgroup is the least of its ancestors', rounded up") {
  const test::ScratchFolder mount;
  const auto cores = [&](const std::string& group) { return quota_cores(mount.path(), group); };
  CHECK_FALSE(cores("/"));
  CHECK_FALSE(cores(""));
  CHECK_FALSE(cores("/none/of/these"));
  write_limit(mount.path() / "job", "max 100000");
  CHECK_FALSE(cores("/job"));
  write_limit(mount.path() / "job/step", "250000 100000");
  CHECK(cores("/job/step") == 3);
  CHECK(cores("/job/step/task") == 3);
  write_limit(mount.path() / "job/step/task", "800000 100000");
  CHECK(cores("/job/step/task") == 3);
  write_limit(mount.path() / "job/step/task", "5000 100000");
  CHECK(cores("/job/step/task") == 1);
  CHECK_FALSE(cores("/job"));
  write_limit(mount.path(), "200000 100000");
  CHECK(cores("/") == 2);
  CHECK(cores("/../elsewhere") == 2);
  CHECK(cores("/job/step") == 2);
  write_limit(mount.path(), "nonsense");
  CHECK_FALSE(cores("/"));
}

}  // namespace sdp
