#include "doctor/facts.h"

#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "comm/cores.h"
#include "device/device.h"
#include "device/version.h"
#include "doctor/network.h"
#include "process/identity.h"
#include "process/memory.h"
#include "spec/json_fields.h"
#include "text/json_text.h"

#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <nccl.h>
#include <torch/csrc/cuda/nccl.h>
#endif

namespace sdp {
namespace {

std::string first_word_of(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

/// MemAvailable of /proc/meminfo; 0 if it is not reported.
int64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

/// Version of the NCCL library that the loader found. Its ABI version has one byte each for major, minor and
/// patch.
std::string torch_runtime() {
  const uint64_t version = aoti_torch_abi_version();
  return fmt::format("{}.{}.{}", version >> 56, (version >> 48) & 0xFF, (version >> 40) & 0xFF);
}

#ifdef USE_C10D_NCCL
std::string nccl_text(int major, int minor, int patch) {
  return fmt::format("{}.{}.{}", major, minor, patch);
}

std::string id_of(const cudaDeviceProp& properties) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(properties.uuid.bytes);
  std::string uuid = "GPU-";
  bool is_set = false;
  for (size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    uuid += fmt::format("{:02x}", bytes[i]);
    is_set = is_set || bytes[i] != 0;
  }
  return is_set ? uuid
                : fmt::format("PCI {:04x}:{:02x}:{:02x}", properties.pciDomainID, properties.pciBusID,
                              properties.pciDeviceID);
}

void add_gpu(RankFacts& facts, c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  facts.device = fmt::format("{} (cuda:{})", properties.name, static_cast<int>(device.index()));
  facts.device_id = id_of(properties);
  facts.memory_bytes = static_cast<int64_t>(total);
  facts.free_memory_bytes = static_cast<int64_t>(free);
  facts.nccl_network = nccl_network();
}
#endif

}  // namespace

std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Versions own_versions() {
  return {.program = kProgramVersion, .torch_built = TORCH_VERSION, .torch_runtime = torch_runtime()};
}

CudaVersions own_cuda_versions() {
  CudaVersions versions;
#ifdef USE_C10D_NCCL
  versions.built = CUDART_VERSION;
  // An error means that there is no driver, which version 0 expresses.
  if (cudaRuntimeGetVersion(&versions.runtime) != cudaSuccess) versions.runtime = 0;
  if (cudaDriverGetVersion(&versions.driver) != cudaSuccess) versions.driver = 0;
  (void)cudaGetLastError();
  versions.driver_release = first_word_of("/sys/module/nvidia/version");
  if (at::detail::getCUDAHooks().hasCuDNN()) {
    const long cudnn = at::detail::getCUDAHooks().versionRuntimeCuDNN();
    versions.cudnn = fmt::format("{}.{}.{}", cudnn / 10000, cudnn % 10000 / 100, cudnn % 100);
  }
  versions.nccl_built = nccl_text(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  const uint64_t nccl = torch::cuda::nccl::version();
  versions.nccl_runtime = nccl_text(static_cast<int>(nccl >> 32), static_cast<int>(nccl >> 16 & 0xFFFF),
                                    static_cast<int>(nccl & 0xFFFF));
#endif
  return versions;
}

RankFacts own_facts(const Ranks& ranks, const std::optional<c10::Device>& device) {
  RankFacts facts;
  facts.rank = ranks.rank;
  facts.host = host_name();
  facts.cores = available_cores();
  facts.interface = gloo_interface(ranks);
  facts.memory_bytes = physical_memory_bytes();
  facts.free_memory_bytes = available_memory_bytes();
  if (device && device->is_cpu()) facts.device = "CPU";
#ifdef USE_C10D_NCCL
  if (device && device->is_cuda()) add_gpu(facts, *device);
#endif
  facts.clock_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return facts;
}

std::string to_text(const Report& report) {
  const nlohmann::ordered_json json = {{"versions", json_of(report.versions)},
                                       {"cuda", json_of(report.cuda)},
                                       {"facts", json_of(report.facts)}};
  return json_text(json);
}

Report report_from(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text);
  return {.versions = struct_of<Versions>(json.at("versions")),
          .cuda = struct_of<CudaVersions>(json.at("cuda")),
          .facts = struct_of<RankFacts>(json.at("facts"))};
}

}  // namespace sdp
