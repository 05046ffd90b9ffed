// What follows from the facts and the rates of all processes, and how findings of several ranks are merged.
// Every failure is planted.

#include <functional>

#include "catch.h"
#include "doctor/checks.h"
#include "doctor/machine.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

/// Two GPUs on each of two hosts, without faults.
std::vector<ProcessFacts> healthy() {
  ProcessFacts facts;
  facts.interface = "eth0";
  facts.versions = "sdp-train 1.0.0";
  facts.torch_built = "2.11.0";
  facts.torch_runtime = "2.11.1";
  facts.cuda_built = 13000;
  facts.cuda_driver = 13010;
  std::vector<ProcessFacts> processes(4, facts);
  for (int rank = 0; rank < 4; ++rank) {
    processes[rank].rank = rank;
    processes[rank].host = rank < 2 ? "a" : "b";
    processes[rank].device = rank % 2 == 0 ? "H200 (0000:0A:00.0)" : "H200 (0000:0B:00.0)";
  }
  return processes;
}

Ranks ranks_of(int world, bool single_host) {
  Ranks ranks;
  ranks.world = world;
  ranks.single_host = single_host;
  return ranks;
}

DeviceProfiles profiles_with(double flops_per_s, double inside_bytes_per_s) {
  DeviceProfiles profiles;
  for (const Precision precision : {Precision::kFp64, Precision::kFp32, Precision::kBf16})
    profiles[precision] = {.name = "CPU",
                           .flops_per_s = flops_per_s,
                           .launch_s = 1e-6,
                           .memory_bytes_per_s = 100,
                           .inside_bytes_per_s = inside_bytes_per_s,
                           .memory_bytes = 1000};
  return profiles;
}

}  // namespace

TEST_CASE("every fault that is planted is found, with its ranks; without one there is none") {
  struct Fault {
    Finding (*check)(const std::vector<ProcessFacts>&);
    std::function<void(std::vector<ProcessFacts>&)> plant;
    Status status;
    const char* named;
  };
  using Facts = std::vector<ProcessFacts>;
  const auto on_all = [](auto member, const auto& value) {
    return [=](Facts& processes) {
      for (ProcessFacts& facts : processes)
        facts.*member = value;
    };
  };
  const auto none = [](Facts&) {};
  const std::vector<Fault> faults = {
      {check_versions, none, Status::kPass, ""},
      {check_versions, [](Facts& p) { p[2].versions = "sdp-train 1.0.1"; }, Status::kFail,
       "rank 2: sdp-train"},
      {check_versions, on_all(&ProcessFacts::torch_runtime, "2.12.0"), Status::kFail, ""},
      {check_driver, none, Status::kPass, ""},
      {check_driver, [](Facts& p) { p[3].cuda_driver = 12080; }, Status::kFail,
       "rank 3: the driver supports CUDA 12.8"},
      {check_driver, on_all(&ProcessFacts::cuda_built, 13020), Status::kPass,
       ""},  // an older minor is enough
      {check_driver, on_all(&ProcessFacts::cuda_driver, 0), Status::kSkip, ""},
      {check_devices, none, Status::kPass, ""},  // GPUs of two hosts are different ones
      {check_devices, [](Facts& p) { p[3].device = p[2].device; }, Status::kFail,
       "2 and 3 on H200 (0000:0A:00.0) of b"},
      {check_devices, [](Facts& p) { p[1].device = "CPU"; }, Status::kFail, "rank 1: "},
      {check_devices, on_all(&ProcessFacts::device, "CPU"), Status::kPass, ""}};
  for (const Fault& fault : faults) {
    std::vector<ProcessFacts> processes = healthy();
    fault.plant(processes);
    const Finding finding = fault.check(processes);
    INFO(finding.check << ": " << finding.detail);
    CHECK(finding.status == fault.status);
    CHECK(contains(finding.detail, fault.named));
    if (fault.status == Status::kFail && fault.check != check_devices) CHECK_FALSE(finding.advice.empty());
  }
  CHECK(check_network(healthy(), ranks_of(4, /*single_host=*/false)).status == Status::kPass);
}

TEST_CASE("a host whose name resolves to a loopback address cannot be reached from others") {
  const Ranks several = ranks_of(4, /*single_host=*/false);
  std::vector<ProcessFacts> processes = healthy();
  processes[2].interface = processes[3].interface = "lo";
  const Finding finding = check_network(processes, several);
  CHECK(finding.status == Status::kFail);
  CHECK(contains(finding.detail, "ranks 2 3: the name of host b resolves to a loopback address"));
  CHECK(contains(finding.advice, "GLOO_SOCKET_IFNAME"));
  // Processes that could not connect are told too.
  CHECK(check_network({processes[2]}, several).status == Status::kFail);
  CHECK(check_network({processes[0]}, several).status == Status::kPass);
  processes[0].interface = "?";
  CHECK(contains(check_network({processes[0]}, several).detail, "resolves to no address of this host"));

  for (ProcessFacts& facts : processes) {
    facts.host = "a";
    facts.interface = "lo";
  }
  CHECK(check_network(processes, several).status == Status::kPass);
  CHECK(check_network({processes[0]}, ranks_of(4, /*single_host=*/true)).status == Status::kPass);
  CHECK(check_network({processes[0]}, ranks_of(1, /*single_host=*/true)).status == Status::kSkip);
}

TEST_CASE("the interface of an address is found") {
  CHECK(interface_of("127.0.0.1") == "lo");
  CHECK(interface_of("127.0.1.1") == "lo");
  CHECK(interface_of("192.0.2.1") == "?");  // reserved for documentation (RFC 5737)
  CHECK(gloo_interface(Ranks{}).empty());
}

TEST_CASE("the worst finding of all ranks counts, and its ranks are named") {
  CHECK(merged({pass("c", "fine"), pass("c", "")}) == pass("c", "fine"));
  CHECK(merged({pass("c", "5 s"), skipped("c", ""), pass("c", "6 s")}).detail == "rank 0: 5 s; rank 2: 6 s");
  const Finding finding =
      merged({pass("c", "fine"), failed("c", "broken", "mend it"), failed("c", "broken", "mend it")});
  CHECK(finding.status == Status::kFail);
  CHECK(finding.detail == "ranks 1 2: broken");
  CHECK(finding.advice == "mend it");
  CHECK(merged({failed("c", "broken"), skipped("c", "")}).detail == "broken");
  CHECK(merged({failed("c", "broken"), failed("c", "broken")}).detail == "broken");
}

TEST_CASE("the common profile has the slowest rank's rates, and memory rates where no link was measured") {
  for (const auto& [of_ranks, flops_per_s, inside_bytes_per_s] :
       {std::tuple(std::vector{profiles_with(20, 7), profiles_with(10, 9)}, 10, 7),
        {std::vector{profiles_with(20, 0), profiles_with(10, 9)}, 10, 9},
        {std::vector{profiles_with(20, 0)}, 20, 50}})  // a copy reads and writes
    for (const auto& [precision, profile] : common_profiles(of_ranks)) {
      CHECK(profile.flops_per_s == flops_per_s);
      CHECK(profile.inside_bytes_per_s == inside_bytes_per_s);
      CHECK(profile.between_bytes_per_s == inside_bytes_per_s);
    }
  CHECK(contains(device_rates_text({profiles_with(20e9, 7), profiles_with(10e9, 9)}), "(rank 1) to"));
  CHECK(contains(link_rates_text({profiles_with(20, 7), profiles_with(10, 9)}), "B/s (rank 0) to"));
  CHECK_FALSE(contains(link_rates_text({profiles_with(20, 7), profiles_with(10, 9)}), "other hosts"));
}
