// Conclusions from facts, and how findings of several ranks are merged. Every failure is planted.

#include "catch.h"
#include "doctor/judge.h"
#include "doctor/rates.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

/// Two GPUs on each of two hosts, without faults.
std::vector<Report> healthy() {
  std::vector<Report> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    Report report;
    report.versions = {.program = "1.0.0", .torch_built = "2.11.0", .torch_runtime = "2.11.1"};
    report.cuda = {.built = 13000,
                   .runtime = 13000,
                   .driver = 13010,
                   .driver_release = "590.1",
                   .cudnn = "9.1.0",
                   .nccl_built = "2.28.9",
                   .nccl_runtime = "2.28.9"};
    report.facts.rank = rank;
    report.facts.host = rank < 2 ? "a" : "b";
    report.facts.device = "H200";
    report.facts.device_id = rank % 2 == 0 ? "GPU-0" : "GPU-1";
    report.facts.interface = "eth0";
    report.facts.clock_s = 1000 + rank;
    ranks.push_back(report);
  }
  return ranks;
}

RankRates rates_of(double flops_per_s, double inside_bytes_per_s) {
  RankRates rates;
  for (const Precision precision : {Precision::kFp64, Precision::kFp32, Precision::kBf16})
    rates.profiles[precision] = {.name = "CPU",
                                 .flops_per_s = flops_per_s,
                                 .launch_s = 1e-6,
                                 .memory_bytes_per_s = 100,
                                 .memory_bytes = 1000};
  rates.exchange.inside_bytes_per_s = inside_bytes_per_s;
  return rates;
}

}  // namespace

TEST_CASE("no fault is found if there is none") {
  const std::vector<Report> ranks = healthy();
  for (const auto judge : {judge_versions, judge_driver, judge_devices, judge_network, judge_clocks}) {
    const Finding finding = judge(ranks);
    INFO(finding.check << ": " << finding.detail);
    CHECK(finding.status == Status::kPass);
  }
}

TEST_CASE("versions that differ between ranks fail, and name the ranks") {
  std::vector<Report> ranks = healthy();
  ranks[2].versions.program = "1.0.1";
  const Finding finding = judge_versions(ranks);
  CHECK(finding.status == Status::kFail);
  CHECK(contains(finding.detail, "1.0.1"));
  CHECK(contains(finding.detail, "rank 2 (host b)"));
  ranks = healthy();
  ranks[1].cuda.nccl_runtime = "2.20.0";
  CHECK(judge_versions(ranks).status == Status::kFail);
}

TEST_CASE("a LibTorch of another minor version fails") {
  std::vector<Report> ranks = healthy();
  for (Report& report : ranks)
    report.versions.torch_runtime = "2.12.0";
  CHECK(judge_versions(ranks).status == Status::kFail);
}

TEST_CASE("a driver that is too old for the build's CUDA fails; an older minor version does not") {
  std::vector<Report> ranks = healthy();
  ranks[3].cuda.driver = 12080;
  const Finding finding = judge_driver(ranks);
  CHECK(finding.status == Status::kFail);
  CHECK(contains(finding.detail, "12.8"));
  CHECK(contains(finding.detail, "13.0"));
  CHECK(contains(finding.detail, "rank 3"));
  CHECK_FALSE(finding.advice.empty());
  for (Report& report : ranks) {
    report.cuda.driver = 13000;
    report.cuda.built = 13020;
  }
  CHECK(judge_driver(ranks).status == Status::kPass);
  for (Report& report : ranks)
    report.cuda.driver = 0;
  CHECK(judge_driver(ranks).status == Status::kSkip);
}

TEST_CASE("two ranks on one GPU fail; GPUs of two hosts are different ones") {
  std::vector<Report> ranks = healthy();
  ranks[3].facts.device_id = "GPU-0";
  const Finding finding = judge_devices(ranks);
  CHECK(finding.status == Status::kFail);
  CHECK(contains(finding.detail, "ranks 2 3 (host b)"));
  CHECK(contains(finding.detail, "GPU-0"));
}

TEST_CASE("a rank without a device, or on the CPU while others use GPUs, fails") {
  std::vector<Report> ranks = healthy();
  ranks[1].facts.device = ranks[1].facts.device_id = "";
  CHECK(contains(judge_devices(ranks).detail, "rank 1 (host a)"));
  CHECK(judge_devices(ranks).status == Status::kFail);
  ranks[1].facts.device = "CPU";
  CHECK(judge_devices(ranks).status == Status::kFail);
  for (Report& report : ranks)
    report.facts.device_id = "";  // all ranks on CPUs, any number per host
  CHECK(judge_devices(ranks).status == Status::kPass);
}

TEST_CASE("a host whose name resolves to a loopback address cannot be reached from others") {
  std::vector<Report> ranks = healthy();
  ranks[2].facts.interface = ranks[3].facts.interface = "lo";
  const Finding finding = judge_network(ranks);
  CHECK(finding.status == Status::kFail);
  CHECK(contains(finding.detail, "ranks 2 3 (host b)"));
  for (Report& report : ranks) {
    report.facts.host = "a";
    report.facts.interface = "lo";
  }
  CHECK(judge_network(ranks).status == Status::kPass);
}

TEST_CASE("clocks of two hosts that are minutes apart fail") {
  std::vector<Report> ranks = healthy();
  ranks[2].facts.clock_s += 120;
  CHECK(judge_clocks(ranks).status == Status::kFail);
  CHECK(contains(judge_clocks(ranks).detail, "host b is"));
}

TEST_CASE("facts are unchanged when sent to other ranks") {
  const Report report = healthy()[3];
  const Report read = report_from(to_text(report));
  CHECK(to_text(read) == to_text(report));
  CHECK(read.facts.host == "b");
  CHECK(read.cuda.driver == 13010);
  CHECK(read.versions.torch_runtime == "2.11.1");
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
  const DeviceProfile slow = common_profiles({rates_of(20, 7), rates_of(10, 9)}).at(Precision::kFp32);
  CHECK(slow.flops_per_s == 10);
  CHECK(slow.inside_bytes_per_s == 7);
  CHECK(slow.between_bytes_per_s == 7);
  const DeviceProfile alone = common_profiles({rates_of(20, 0)}).at(Precision::kBf16);
  CHECK(alone.inside_bytes_per_s == 50);  // a copy reads and writes
  const Finding finding = judge_device_rates({rates_of(20e9, 7), rates_of(10e9, 9)});
  CHECK(contains(finding.detail, "(rank 1)"));
  CHECK(contains(judge_exchange_rates({rates_of(20, 7), rates_of(10, 9)}).detail, "B/s (rank 0) to"));
  CHECK(judge_exchange_rates({rates_of(20, 0)}).status == Status::kSkip);
  const RankRates read = rates_from(to_text(rates_of(20, 7)));
  CHECK(read.exchange.inside_bytes_per_s == 7);
  CHECK(read.profiles.at(Precision::kFp64).flops_per_s == 20);
}

TEST_CASE("the library workspace is compared with that of plans for the same GPU") {
  constexpr const char* kH100 = "NVIDIA H100 80GB HBM3 (cuda:0)";
  constexpr int64_t kMib = int64_t{1} << 20;
  const auto with = [](int64_t bytes) {
    RankRates rates = rates_of(20, 7);
    rates.profiles.at(Precision::kFp32).library_workspace_bytes = bytes;
    return rates;
  };
  // LibTorch's size for compute capability 9.0, in two threads.
  CHECK(judge_library_workspace({with(2 * 32 * kMib)}, {kH100}).status == Status::kPass);
  const Finding other = judge_library_workspace({with(2 * 32 * kMib), with(2 * 8 * kMib)}, {kH100, kH100});
  CHECK(other.status == Status::kFail);
  CHECK(contains(other.detail, "rank 1"));
  CHECK(judge_library_workspace({with(2 * 8 * kMib)}, {"NVIDIA L4 (cuda:0)"}).status == Status::kPass);
  CHECK(judge_library_workspace({with(0)}, {"CPU"}).status == Status::kSkip);
}
