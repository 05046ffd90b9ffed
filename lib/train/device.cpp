#include "train/device.h"

#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <algorithm>
#include <thread>

#include "spec/error.h"

namespace sdp {

int device_count(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? 0 : static_cast<int>(torch::cuda::device_count());
}

c10::Device choose_device(DeviceKind kind, int local_rank) {
  const int devices = device_count(kind);
  if (kind == DeviceKind::kCuda && devices == 0)
    throw UsageError(
        "train.device: cuda, but no CUDA device is visible. Use train.device: cpu, or make a GPU visible.");
  if (devices == 0) return c10::Device(c10::kCPU);
  if (local_rank >= devices)
    throw UsageError(
        fmt::format("{} CUDA devices are visible, but this is local process {}. Start at most one "
                    "process a GPU: fewer processes, with several workers each, give the same result.",
                    devices, local_rank));
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
}

int use_cores_of_one_process(int local_world) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = std::max(1, cores / std::max(1, local_world));
  at::set_num_threads(threads);
  return threads;
}

std::string device_name(c10::Device device) {
  return device.is_cuda() ? "CUDA" : "CPU";
}

}  // namespace sdp
