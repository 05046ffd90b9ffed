#include "engine/device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "comm/cores.h"
#include "comm/shared_devices.h"
#include "process/allocations.h"
#include "process/stopwatch.h"
#include "spec/error.h"
#include "spec/json_fields.h"

#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <shared_mutex>
#endif

namespace sdp {

#ifdef USE_C10D_NCCL
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void leave_out_all(at::cuda::WorkspaceMapWithMutex& workspaces) {
  const std::shared_lock lock(workspaces.mutex);
  for (const auto& [handle_and_stream, data] : workspaces.map)
    leave_out(data.get());
}

/// For this thread and the current stream. Both threads of a step use the same stream, but each has its own
/// cuBLAS handle, and a workspace belongs to a handle and a stream.
void allocate_for_this_thread() {
  at::cuda::getCurrentCUDABlasHandle();
  at::cuda::getCUDABlasLtWorkspace();  // the same memory, unless TORCH_CUBLASLT_UNIFIED_WORKSPACE is 0
  leave_out_all(at::cuda::cublas_handle_stream_to_workspace());
  leave_out_all(at::cuda::cublaslt_handle_stream_to_workspace());
}

/// Its backward pass runs in autograd's thread of the device.
class InBackwardThread : public torch::autograd::Function<InBackwardThread> {
 public:
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
    allocate_for_this_thread();
    return gradients;
  }
};

constexpr int64_t kProductThreads = 2;  // forward and backward

}  // namespace

void allocate_library_workspace(c10::Device device) {
  if (!device.is_cuda()) return;
  allocate_for_this_thread();
  const at::Tensor x = torch::zeros({1}, at::TensorOptions(device).requires_grad(true));
  InBackwardThread::apply(x).backward();
}

int64_t library_workspace_bytes(c10::Device device) {
  return device.is_cuda() ? kProductThreads * static_cast<int64_t>(at::cuda::getChosenWorkspaceSize()) : 0;
}
#else
void allocate_library_workspace(c10::Device /*device*/) {}
int64_t library_workspace_bytes(c10::Device /*device*/) {
  return 0;
}
#endif

void use_deterministic_kernels() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read when cuBLAS starts
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setSDPUseMemEfficient(false);
}

int device_count(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? 0 : static_cast<int>(torch::cuda::device_count());
}

c10::Device choose_device(DeviceKind kind, const Ranks& ranks) {
  const int devices = device_count(kind);
  if (kind == DeviceKind::kCuda && devices == 0)
    throw UsageError(
        "train.device: cuda, but no CUDA device is visible. Use train.device: cpu, or make a GPU visible.");
  if (devices == 0) return c10::Device(c10::kCPU);
  // Our own launcher shows all GPUs to every process; srun and MPI wrappers may show each process only its
  // own. The backend decides whether processes may share a GPU (comm/shared_devices.h).
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(ranks.local_rank % devices));
}

void check_processes(DeviceKind kind, BackendKind backend, int processes) {
  const int devices = device_count(kind);
  if (devices == 0 || backend == BackendKind::kGloo) return;
  std::vector<DevicePlace> places;
  for (int rank = 0; rank < processes; ++rank)
    places.push_back({.host = nccl_host(), .device = fmt::format("GPU {}", rank % devices)});
  if (const std::string refusal = refuse_shared_devices(places); !refusal.empty()) throw UsageError(refusal);
}

void prepare_device([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) c10::cuda::set_device(device.index());
#endif
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setSDPUseCuDNN(false);
  count_allocations(device);
  allocate_library_workspace(device);
}

void use_own_cores() {
  at::set_num_threads(threads_of({own_claim()}).front());
}

std::vector<std::string> divide_cores(Communicator& comm) {
  std::vector<CoreClaim> claims;
  for (const std::string& text : comm.all_gather_strings(json_text(json_of(own_claim()))))
    claims.push_back(struct_of<CoreClaim>(nlohmann::ordered_json::parse(text)));
  at::set_num_threads(threads_of(claims)[static_cast<size_t>(comm.rank())]);
  return warnings_about(claims);
}

at::Generator make_generator(c10::Device device) {
  return at::globalContext().defaultGenerator(device).clone();
}

std::string device_name(c10::Device device) {
  return device.is_cuda() ? "CUDA" : "CPU";
}

std::string gpu_name([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
    return properties.name;
  }
#endif
  return "";
}

int64_t device_memory_bytes([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    size_t free = 0;
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(total);
  }
#endif
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

int64_t multiprocessors([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    int count = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index()));
    return count;
  }
#endif
  return 1;
}

int64_t peak_process_memory_bytes([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return stats.reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
  }
#endif
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  throw std::runtime_error("/proc/self/status does not tell VmHWM");
}

void reset_peak_memory([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
#endif
}

void synchronize(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

Ranks placed_ranks(const Ranks& started, const NodeMap& nodes) {
  if (nodes.placement == NodePlacement::kInOrder) return started;
  if (started.world % started.local_world != 0 || started.rank % started.local_world != started.local_rank)
    throw UsageError(fmt::format(
        "subnetwork.placement: found {}, but rank {} of {} is number {} of {} on its node ({}). Expected "
        "ranks numbered node by node, with equally many per node: start them so (srun --distribution=block, "
        "mpirun "
        "--map-by slot), or set in_order.",
        name_of(nodes.placement), started.rank, started.world, started.local_rank, started.local_world,
        started.source));
  Ranks placed = started;
  placed.rank = nodes.process_of_rank(started.rank);
  placed.equal_hosts = true;
  return placed;
}

double fastest_s(at::Device device, const std::function<void()>& run) {
  constexpr int kTimes = 3;
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kTimes; ++i) {
    synchronize(device);
    const Stopwatch stopwatch;
    run();
    synchronize(device);
    if (i > 0) fastest = std::min(fastest, stopwatch.seconds());
  }
  return fastest;
}

double product_rate(const at::TensorOptions& options) {
  constexpr int64_t kLargestSide = 8192;
  for (int64_t side = 512;; side *= 2) {
    const at::Tensor a = at::randn({side, side}, options);
    at::Tensor product = at::empty({side, side}, options);
    const double seconds = fastest_s(options.device(), [&] { at::mm_out(product, a, a); });
    const auto length = static_cast<double>(side);
    if (seconds >= kEnoughSeconds || side == kLargestSide) return 2 * length * length * length / seconds;
  }
}

}  // namespace sdp
