// What follows from the facts and the rates of all processes, and how findings of several ranks are merged.
// Every failure is planted.

#include <ATen/ATen.h>

#include <cmath>
#include <functional>

#include "catch.h"
#include "comm/communicator.h"
#include "comm/thread_ranks.h"
#include "doctor/checks.h"
#include "doctor/machine.h"
#include "optim/sgd.h"
#include "spec/error.h"
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
  CHECK(contains(finding.detail, "ranks 2 3: "));
  // Processes that could not connect are told too.
  CHECK(check_network({processes[2]}, several).status == Status::kFail);
  CHECK(check_network({processes[0]}, several).status == Status::kPass);
  processes[0].interface = "?";
  CHECK(check_network({processes[0]}, several).status == Status::kFail);

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
}

// What ranks check together, on ranks that are threads: collectives, a masked step, a run folder, and how
// they agree on a finding of one of them.

namespace fs = std::filesystem;

namespace {

/// What all ranks agree on, as rank 0 has it.
Agreed agreed(int ranks, const std::function<Finding(Communicator&)>& check) {
  Agreed found;
  run_thread_ranks(ranks, [&](Communicator& comm) {
    const Agreed own = agree(comm, "check", [&] { return check(comm); });
    if (comm.rank() == 0) found = own;
  });
  return found;
}

/// Of ranks whose collectives `change` may change.
Finding exchange(int ranks, const std::function<void(ExchangeCalls&, int rank)>& change) {
  return agreed(ranks,
                [&](Communicator& comm) {
                  ExchangeCalls calls = calls_of(comm);
                  change(calls, comm.rank());
                  return check_exchange(calls, comm.rank(), comm.size(), comm.device());
                })
      .finding;
}

/// When `change` is made to the oracle's values.
Finding masked_step(int ranks, const std::function<void(FullValues&)>& change) {
  return agreed(ranks,
                [&](Communicator& comm) {
                  FullValues expected = oracle_values(masked_step_spec(Precision::kFp64, ranks));
                  change(expected);
                  return check_masked_step(expected, comm);
                })
      .finding;
}

/// Of three ranks on two hosts.
Finding run_folder(const fs::path& parent) {
  return agreed(
             3,
             [&](Communicator& comm) { return check_run_folder(comm, parent, comm.rank() == 0 ? "a" : "b"); })
      .finding;
}

}  // namespace

TEST_CASE("correct collectives and masked steps pass, in worlds of any size") {
  for (const int world : {1, 2, 3, 5})
    CHECK(exchange(world, [](ExchangeCalls&, int) {}).status == Status::kPass);
  for (const int world : {1, 2, 3}) {
    const Finding finding = masked_step(world, [](FullValues&) {});
    INFO(finding.detail);
    CHECK(finding.status == Status::kPass);
    CHECK_FALSE(contains(finding.detail, "rank"));
  }
}

TEST_CASE("every wrong collective is found") {
  const auto all_to_all_with = [](const std::function<void(const at::Tensor& received)>& change) {
    return [=](ExchangeCalls& calls) {
      calls.all_to_all = [change, right = calls.all_to_all](const at::Tensor& recv, const auto&... rest) {
        right(recv, rest...);
        if (recv.numel() > 0) change(recv);
      };
    };
  };
  const std::vector<std::pair<std::function<void(ExchangeCalls&)>, const char*>> changes = {
      {all_to_all_with([](const at::Tensor& recv) { recv.copy_(recv.flip(0).contiguous()); }), "all-to-all"},
      {all_to_all_with([](const at::Tensor& recv) { recv[-1].fill_(0); }), "all-to-all"},
      {[](ExchangeCalls& calls) {
         calls.all_reduce_sum = [right = calls.all_reduce_sum](const at::Tensor& tensor) {
           right(tensor);
           tensor[500] += 1;
         };
       },
       "element 500"},
      {[](ExchangeCalls& calls) {
         calls.broadcast = [right = calls.broadcast](const at::Tensor& tensor, int root) {
           const at::Tensor before = tensor.clone();
           right(tensor, root);
           if (root == 2) tensor.copy_(before);
         };
       },
       "broadcast from rank 2"},
      {[](ExchangeCalls& calls) {
         calls.all_gather = [right = calls.all_gather](const at::Tensor& out, const at::Tensor& in) {
           right(out, in);
           out.zero_();
         };
       },
       "all-gather"}};
  for (const auto& [change, named] : changes) {
    const Finding found = exchange(3, [&, change = change](ExchangeCalls& calls, int rank) {
      if (rank == 1) change(calls);
    });
    INFO(found.detail);
    CHECK(found.status == Status::kFail);
    CHECK(contains(found.detail, named));
    CHECK(contains(found.detail, "rank 1: "));
  }
}

TEST_CASE("a slightly wrong value fails in fp64 only, a wrong step or not-a-number in both precisions") {
  const auto twice = [](FullValues& values) {
    ExperimentSpec spec = masked_step_spec(Precision::kFp64, 2);
    spec.optimizer.rule = SgdSpec{.lr = 2 * spec.optimizer.lr()};
    values = oracle_values(spec);
  };
  for (const auto& [finding, is_small] :
       {std::pair(masked_step(2, [](FullValues& values) { values.front() += 1e-7; }), true),
        {masked_step(2, twice), false},
        {masked_step(2, [](FullValues& values) { values[0].fill_(NAN); }), false}}) {
    CHECK(finding.status == Status::kFail);
    CHECK(contains(finding.detail, "; in fp64 at most"));
    CHECK(contains(finding.detail, "; in bf16") == !is_small);
  }
  // Another regime is not the oracle's, nor is a gradient averaged over other workers.
  run_thread_ranks(2, [](Communicator& comm) {
    ExperimentSpec frozen = masked_step_spec(Precision::kFp64, 2), whole = frozen;
    const FullValues expected = oracle_values(frozen);
    frozen.subnetwork.masking = Masking::kBackward;
    whole.subnetwork.coverage.text = "1";
    for (const ExperimentSpec& spec : {frozen, whole})
      if (!(step_difference(spec, expected, comm) > 1e-3)) throw std::logic_error("no difference");
  });
}

TEST_CASE("a run folder is locked, seen and written to by all, made if missing, and left unchanged") {
  const TempFolder temp;
  for (const fs::path& parent : {temp.path(), temp / "runs/deep"}) {
    const Finding finding = run_folder(parent);
    INFO(finding.detail);
    CHECK(finding.status == Status::kPass);
    CHECK(contains(finding.detail, temp.path().string()));
    CHECK(fs::is_empty(temp.path()));
  }
  const fs::path file = temp.write("file", "x");
  for (const fs::path& parent : {fs::path("/proc"), file}) {
    const Finding finding = run_folder(parent);
    CHECK(finding.status == Status::kFail);
    CHECK(contains(finding.detail, parent.string()));
    CHECK_FALSE(contains(finding.detail, "rank"));
  }
  CHECK(fs::exists(file));
}

TEST_CASE("exceptions of one rank are reported by all, also when it leaves an exchange") {
  const Agreed lost = agreed(3, [](Communicator& comm) -> Finding {
    if (comm.rank() == 2) throw std::runtime_error("out of memory\nand a call stack");
    return pass("check", "fine");
  });
  CHECK(lost.threw);
  CHECK(lost.finding == failed("check", "rank 2: out of memory"));

  run_thread_ranks(3, [](Communicator& control) {
    Ranks ranks;
    ranks.single_host = true;
    // Also limits connecting, which takes longer on a busy machine.
    const std::chrono::milliseconds timeout{5000};
    const std::unique_ptr<Communicator> comm = connect_beside(control, ranks, at::kCPU, timeout);
    const Agreed left = agree(control, "exchange", [&]() -> Finding {
      if (comm->rank() == 1) throw std::runtime_error("the device failed");
      comm->all_reduce_sum(at::ones({4}));
      return pass("exchange", "");
    });
    comm->abandon();
    if (!left.threw || left.finding.status != Status::kFail ||
        !contains(left.finding.detail, "rank 1: the device failed"))
      throw std::logic_error(left.finding.detail);
  });
}

TEST_CASE("rates between hosts are measured if there are several") {
  run_thread_ranks(3, [](Communicator& comm) {
    const LinkRates one_host = measure_links(comm, {"a", "a", "a"});
    const LinkRates two_hosts = measure_links(comm, {"a", "a", "b"});
    const bool is_alone = comm.rank() == 2;  // the only rank on its host
    if (!(one_host.inside_bytes_per_s > 0) || one_host.between_bytes_per_s != 0)
      throw std::logic_error("one host");
    if ((two_hosts.inside_bytes_per_s == 0) != is_alone || !(two_hosts.between_bytes_per_s > 0))
      throw std::logic_error("two hosts");
  });
}
