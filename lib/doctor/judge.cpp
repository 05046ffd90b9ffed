#include "doctor/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "text/units.h"

namespace sdp {
namespace {

constexpr double kMostClockSkewSeconds = 60;

std::string release_of(const std::string& version) {
  return version.substr(0, version.rfind('.'));
}

std::string text_of(const Versions& versions) {
  const std::string torch =
      versions.torch_built == versions.torch_runtime
          ? versions.torch_runtime
          : fmt::format("{} (compiled for {})", versions.torch_runtime, versions.torch_built);
  return fmt::format("sdp-train {}, LibTorch {}", versions.program, torch);
}

std::string text_of(const CudaVersions& cuda) {
  if (cuda.built == 0) return "no CUDA in this build";
  std::string text = fmt::format("CUDA {}", cuda_text(cuda.built));
  if (cuda.runtime != cuda.built && cuda.runtime != 0)
    text += fmt::format(" (runs with {})", cuda_text(cuda.runtime));
  if (!cuda.cudnn.empty()) text += ", cuDNN " + cuda.cudnn;
  text += ", NCCL " + cuda.nccl_runtime;
  if (cuda.nccl_built != cuda.nccl_runtime) text += fmt::format(" (compiled for {})", cuda.nccl_built);
  return text;
}

std::string driver_text(const CudaVersions& cuda) {
  return fmt::format("driver {}{}supports CUDA {}", cuda.driver_release,
                     cuda.driver_release.empty() ? "" : " ", cuda_text(cuda.driver));
}

/// "ranks 0 1 (host a), rank 2 (host b)"
std::string by_host(const std::vector<Report>& ranks, const std::vector<int>& which) {
  std::map<std::string, std::vector<int>> hosts;
  for (const int rank : which)
    hosts[ranks[static_cast<size_t>(rank)].facts.host].push_back(rank);
  std::string text;
  for (const auto& [host, numbers] : hosts)
    text += fmt::format("{}rank{} {} (host {})", text.empty() ? "" : ", ", numbers.size() == 1 ? "" : "s",
                        format_numbers(numbers, /*most_characters=*/40), host);
  return text;
}

size_t hosts_of(const std::vector<Report>& ranks) {
  std::set<std::string> hosts;
  for (const Report& report : ranks)
    hosts.insert(report.facts.host);
  return hosts.size();
}

}  // namespace

Finding judge_versions(const std::vector<Report>& ranks) {
  std::map<std::string, std::vector<int>> found;
  for (size_t r = 0; r < ranks.size(); ++r)
    found[text_of(ranks[r].versions) + ", " + text_of(ranks[r].cuda)].push_back(static_cast<int>(r));
  if (found.size() > 1) {
    std::string all;
    for (const auto& [versions, which] : found)
      all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", by_host(ranks, which), versions);
    return failed("versions", "ranks run different versions: " + all,
                  "Start the same executable on all hosts, with the same LD_LIBRARY_PATH.");
  }
  const Versions& versions = ranks.front().versions;
  if (release_of(versions.torch_built) != release_of(versions.torch_runtime))
    return failed(
        "versions", found.begin()->first,
        fmt::format("Run with LibTorch {}, which it was compiled for (LD_LIBRARY_PATH), or compile it "
                    "with this one.",
                    release_of(versions.torch_built)));
  return pass("versions", found.begin()->first);
}

Finding judge_driver(const std::vector<Report>& ranks) {
  std::vector<Finding> findings;
  for (const Report& report : ranks) {
    const CudaVersions& cuda = report.cuda;
    if (cuda.built == 0) {
      findings.push_back(skipped("driver", "this build supports only CPUs"));
    } else if (cuda.driver == 0) {
      findings.push_back(skipped("driver", "no NVIDIA driver is loaded, so no GPU can be used"));
    } else if (cuda.driver / 1000 < cuda.built / 1000) {
      findings.push_back(failed(
          "driver",
          fmt::format("{}, this build needs CUDA {}", driver_text(cuda), cuda_text(cuda.built / 1000 * 1000)),
          "Install a newer NVIDIA driver, or build against a LibTorch for an older CUDA."));
    } else {
      findings.push_back(pass("driver", driver_text(cuda)));
    }
  }
  return merged(findings);
}

Finding judge_devices(const std::vector<Report>& ranks) {
  std::map<std::string, std::vector<int>> by_gpu;
  std::vector<int> without, on_cpu, on_gpu;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankFacts& facts = ranks[r].facts;
    const int rank = static_cast<int>(r);
    if (facts.device.empty()) {
      without.push_back(rank);
    } else if (facts.device_id.empty()) {
      on_cpu.push_back(rank);
    } else {
      on_gpu.push_back(rank);
      by_gpu[facts.host + " " + facts.device_id].push_back(rank);
    }
  }
  if (!without.empty())
    return failed(
        "devices", by_host(ranks, without) + " found no device",
        "Start at most one process per GPU, and make one GPU visible to each (CUDA_VISIBLE_DEVICES).");
  if (!on_cpu.empty() && !on_gpu.empty())
    return failed("devices",
                  fmt::format("{} found no GPU, {} did", by_host(ranks, on_cpu), by_host(ranks, on_gpu)),
                  "Give every process a GPU, or choose --device cpu.");
  for (const auto& [gpu, sharing] : by_gpu)
    if (sharing.size() > 1)
      return failed("devices",
                    fmt::format("{} share {}, which NCCL refuses", by_host(ranks, sharing),
                                ranks[static_cast<size_t>(sharing.front())].facts.device_id),
                    "Start one process per GPU, with several workers each. If every process sees the same "
                    "GPU first, let the launcher set CUDA_VISIBLE_DEVICES for each process.");
  const size_t hosts = hosts_of(ranks);
  const auto count = [](size_t number, const char* what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : what[0] == 'p' ? "es" : "s");
  };
  return pass("devices", on_gpu.empty() ? fmt::format("{} on {} compute on the CPU",
                                                      count(ranks.size(), "process"), count(hosts, "host"))
                                        : fmt::format("{} on {}, one GPU per process",
                                                      count(ranks.size(), "process"), count(hosts, "host")));
}

Finding judge_network(const std::vector<Report>& ranks) {
  if (ranks.size() == 1) return skipped("network", "a single process");
  std::map<std::string, std::vector<int>> by_interface;
  for (size_t r = 0; r < ranks.size(); ++r)
    by_interface[ranks[r].facts.interface].push_back(static_cast<int>(r));
  if (hosts_of(ranks) == 1) return pass("network", "one host: " + by_interface.begin()->first);
  std::vector<int> unreachable;
  std::string names;
  for (const auto& [interface, which] : by_interface) {
    if (interface == "lo" || interface == "?")
      unreachable.insert(unreachable.end(), which.begin(), which.end());
    names += (names.empty() ? "" : ", ") + interface;
  }
  if (!unreachable.empty())
    return failed(
        "network",
        fmt::format("the host's name resolves, on {}, to an interface that other hosts cannot reach",
                    by_host(ranks, unreachable)),
        "Set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to the interface between the hosts, or "
        "correct /etc/hosts.");
  return pass("network", fmt::format("{} hosts over {}", hosts_of(ranks), names));
}

Finding judge_clocks(const std::vector<Report>& ranks) {
  if (hosts_of(ranks) == 1) return skipped("clocks", "a single host");
  const auto [first, last] =
      std::minmax_element(ranks.begin(), ranks.end(),
                          [](const Report& a, const Report& b) { return a.facts.clock_s < b.facts.clock_s; });
  const double skew_s = last->facts.clock_s - first->facts.clock_s;
  const std::string text =
      fmt::format("host {} is {:.1f} s ahead of host {}", last->facts.host, skew_s, first->facts.host);
  if (skew_s > kMostClockSkewSeconds) return failed("clocks", text, "Set the hosts' clocks by NTP.");
  return pass("clocks", fmt::format("within {:.1f} s", skew_s));
}

}  // namespace sdp
