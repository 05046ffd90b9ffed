#include "device/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cstdlib>

#include "comm/cores.h"
#include "comm/shared_devices.h"
#include "device/library_workspace.h"
#include "memory/allocations.h"
#include "process/memory.h"
#include "spec/error.h"

#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace sdp {

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
  for (const std::string& text : comm.all_gather_strings(to_text(own_claim())))
    claims.push_back(claim_from(text));
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
  return physical_memory_bytes();
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
  return peak_resident_bytes();
}

void reset_peak_memory([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
#endif
}

void synchronize(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace sdp
