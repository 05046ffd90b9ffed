#include "doctor/machine.h"

#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "comm/cores.h"
#include "comm/shared_devices.h"
#include "engine/device.h"
#include "process/identity.h"

#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/cuda/nccl.h>
#endif

namespace sdp {
namespace {

constexpr const char* kLoopbackInterface = "lo";
constexpr const char* kNoInterface = "?";

/// The ABI version of LibTorch has one byte each for major, minor and patch.
std::string torch_runtime() {
  const uint64_t version = aoti_torch_abi_version();
  return fmt::format("{}.{}.{}", version >> 56, (version >> 48) & 0xFF, (version >> 40) & 0xFF);
}

/// "13.0" for 13000.
std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

#ifdef USE_C10D_NCCL
void add_cuda_versions(ProcessFacts& facts) {
  facts.cuda_built = CUDART_VERSION;
  // An error means that there is no driver, which version 0 expresses.
  if (cudaDriverGetVersion(&facts.cuda_driver) != cudaSuccess) facts.cuda_driver = 0;
  (void)cudaGetLastError();
  facts.versions += ", CUDA " + cuda_text(facts.cuda_built);
  if (at::detail::getCUDAHooks().hasCuDNN()) {
    const long cudnn = at::detail::getCUDAHooks().versionRuntimeCuDNN();
    facts.versions += fmt::format(", cuDNN {}.{}.{}", cudnn / 10000, cudnn % 10000 / 100, cudnn % 100);
  }
  const uint64_t nccl = torch::cuda::nccl::version();
  facts.versions += fmt::format(", NCCL {}.{}.{}", nccl >> 32, nccl >> 16 & 0xFFFF, nccl & 0xFFFF);
}

void add_gpu(ProcessFacts& facts, c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  std::array<char, 32> bus_id = {};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), device.index()));
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  facts.device = fmt::format("{} ({})", gpu_name(device), bus_id.data());
  facts.free_memory_bytes = static_cast<int64_t>(free);
}
#endif

/// The address as text; empty for one that is neither IPv4 nor IPv6.
std::string text_of(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text = {};
  const socklen_t bytes = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(address, bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text.data();
}

/// "2.11" of "2.11.0".
std::string minor_version(const std::string& version) {
  return version.substr(0, version.rfind('.'));
}

/// The finding of all processes from that of each. If they must be `alike`, it is a failure if they are not.
template <class FindingOf>
Finding finding_of_all(const std::vector<ProcessFacts>& processes, FindingOf finding_of, bool alike = false,
                       const std::string& advice = "") {
  std::vector<Finding> findings;
  for (const ProcessFacts& facts : processes)
    findings.push_back(finding_of(facts));
  const Finding all = merged(findings);
  const bool are_alike =
      std::ranges::all_of(findings, [&](const Finding& one) { return one == findings.front(); });
  if (all.status == Status::kFail || are_alike || !alike) return all;
  return failed(all.check, "not the same on all ranks: " + all.detail, advice);
}

}  // namespace

std::string interface_of(const std::string& host_or_address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  ifaddrs* first = nullptr;
  if (getaddrinfo(host_or_address.c_str(), nullptr, &hints, &found) != 0) return kNoInterface;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  if (getifaddrs(&first) != 0) return kNoInterface;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(first, &freeifaddrs);
  for (const addrinfo* address = addresses.get(); address; address = address->ai_next) {
    const std::string text = text_of(address->ai_addr);
    // All of 127.0.0.0/8 belongs to this host, although the interface lists a single address of it.
    if (text.starts_with("127.")) return kLoopbackInterface;
    for (const ifaddrs* one = interfaces.get(); one; one = one->ifa_next)
      if (one->ifa_addr && text_of(one->ifa_addr) == text) return one->ifa_name;
  }
  return kNoInterface;
}

std::string gloo_interface(const Ranks& ranks) {
  if (ranks.world == 1) return "";
  if (ranks.single_host) return interface_of(kLoopback);
  const char* const named = std::getenv("GLOO_SOCKET_IFNAME");
  return named && *named ? named : interface_of(host_name());
}

ProcessFacts own_facts(const Ranks& ranks, const std::optional<c10::Device>& device) {
  ProcessFacts facts;
  facts.rank = ranks.rank;
  facts.host = host_name();
  facts.cores = available_cores();
  facts.threads = at::get_num_threads();
  facts.interface = gloo_interface(ranks);
  facts.torch_built = TORCH_VERSION;
  facts.torch_runtime = torch_runtime();
  facts.versions = fmt::format("sdp-train {}, LibTorch {}", kProgramVersion, facts.torch_runtime);
  if (device) {
    facts.device = device_name(*device);
    facts.memory_bytes = device_memory_bytes(*device);
  }
#ifdef USE_C10D_NCCL
  add_cuda_versions(facts);
  if (device && device->is_cuda()) add_gpu(facts, *device);
#endif
  return facts;
}

Finding check_versions(const std::vector<ProcessFacts>& processes) {
  constexpr const char* kCheck = "versions";
  const auto of_one = [&](const ProcessFacts& facts) {
    const std::string needed = minor_version(facts.torch_built);
    if (minor_version(facts.torch_runtime) == needed) return pass(kCheck, facts.versions);
    return failed(kCheck, facts.versions,
                  fmt::format("Run with LibTorch {}, which it was compiled for (LD_LIBRARY_PATH), or compile "
                              "it with this one.",
                              needed));
  };
  return finding_of_all(processes, of_one, /*alike=*/true,
                        "Start the same executable on all hosts, with the same LD_LIBRARY_PATH.");
}

Finding check_driver(const std::vector<ProcessFacts>& processes) {
  constexpr const char* kCheck = "driver";
  return finding_of_all(processes, [&](const ProcessFacts& facts) {
    if (facts.cuda_built == 0) return skipped(kCheck, "this build supports only CPUs");
    if (facts.cuda_driver == 0) return skipped(kCheck, "no NVIDIA driver is loaded, so no GPU can be used");
    const std::string supported = "the driver supports CUDA " + cuda_text(facts.cuda_driver);
    if (facts.cuda_driver / 1000 >= facts.cuda_built / 1000) return pass(kCheck, supported);
    return failed(
        kCheck, fmt::format("{}, this build needs {}", supported, cuda_text(facts.cuda_built / 1000 * 1000)),
        "Install a newer NVIDIA driver, or build against a LibTorch for an older CUDA.");
  });
}

Finding check_devices(const std::vector<ProcessFacts>& processes) {
  constexpr const char* kCheck = "devices";
  const auto is_cpu = [](const ProcessFacts& facts) { return facts.device == "CPU"; };
  const Finding kinds = finding_of_all(
      processes,
      [&](const ProcessFacts& facts) {
        return pass(kCheck, is_cpu(facts) ? "each process computes on the CPU" : "one GPU per process");
      },
      /*alike=*/true,
      "Make one GPU visible to every process (CUDA_VISIBLE_DEVICES), or choose --device cpu.");
  if (kinds.status == Status::kFail || is_cpu(processes.front())) return kinds;
  std::vector<DevicePlace> places;
  for (const ProcessFacts& facts : processes)
    places.push_back({.host = facts.host, .device = facts.device});
  const std::string refusal = refuse_shared_devices(places);
  return refusal.empty() ? kinds : failed(kCheck, refusal);
}

Finding check_network(const std::vector<ProcessFacts>& processes, const Ranks& ranks) {
  constexpr const char* kCheck = "network";
  if (ranks.world == 1) return skipped(kCheck, "a single process");
  const bool all_connected = static_cast<int>(processes.size()) == ranks.world;
  const bool one_host =
      ranks.single_host || (all_connected && std::ranges::all_of(processes, [&](const ProcessFacts& facts) {
                              return facts.host == processes.front().host;
                            }));
  return finding_of_all(processes, [&](const ProcessFacts& facts) {
    const std::string& interface = facts.interface;
    if (one_host) return pass(kCheck, "one host, over " + interface);
    if (interface != kLoopbackInterface && interface != kNoInterface)
      return pass(kCheck, "several hosts, over " + interface);
    return failed(kCheck,
                  fmt::format("the name of host {} resolves to {}", facts.host,
                              interface == kNoInterface ? "no address of this host"
                                                        : "a loopback address, which others cannot reach"),
                  "Set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to the interface between the hosts, or "
                  "correct the host's name in /etc/hosts.");
  });
}

}  // namespace sdp
