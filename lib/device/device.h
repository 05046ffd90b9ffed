#pragma once

// The device a process computes on.

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/backend_kind.h"
#include "comm/communicator.h"
#include "comm/ranks.h"
#include "experiment/spec/train_spec.h"

namespace sdp {

/// The device of a process: of the GPUs that it can see number local_rank, counted round where they are fewer
/// than local processes, or the CPU. A scheduler may show each process only its own. UsageError where CUDA is
/// asked for and there is none.
c10::Device choose_device(DeviceKind kind, const Ranks& ranks);

/// For the own launcher, whose processes all see the same GPUs: UsageError where they are more than these and
/// NCCL would refuse it (comm/shared_devices.h).
void check_processes(DeviceKind kind, BackendKind backend, int processes);

/// Makes the device current and counts what is allocated on it. fp32 is fp32: cuDNN's TF32 convolutions,
/// LibTorch's default, are off. So is cuDNN's attention, whose backward pass gives NaN with Swin's masks
/// (https://github.com/pytorch/pytorch/issues/196678); the other kernels are chosen from as always.
void prepare_device(c10::Device device);

/// train.deterministic: what torch.use_deterministic_algorithms(True) does, and attention by the kernels
/// whose backward pass is deterministic then. Before the process's first work on a device.
void use_deterministic_kernels();

/// GPUs that processes of this host may use; 0 for a run on the CPU.
int device_count(DeviceKind kind);

/// Sets this process's number of threads, which it shares its cores with no other process for.
void use_own_cores();

/// Collective. Divides cores that several processes of a host may use (threads_of in comm/cores.h), sets this
/// process's number of threads and returns those of all, in order of rank.
std::vector<int> divide_cores(Communicator& comm);

/// A random-number generator of this device that is nobody else's.
at::Generator make_generator(c10::Device device);

std::string device_name(c10::Device device);
/// As the driver names it, "NVIDIA H200"; empty for a CPU.
std::string gpu_name(c10::Device device);

/// Memory of the current device: the GPU's, or the host's.
int64_t device_memory_bytes(c10::Device device);

/// Multiprocessors of a GPU; 1 for a CPU.
int64_t multiprocessors(c10::Device device);

/// Waits until the device has done what was given to it. Nothing on a CPU.
void synchronize(c10::Device device);

/// The process memory at its peak: what CUDA's caching allocator has reserved on the device since the last
/// reset_peak_memory(), or the process's resident memory on a CPU so far. It holds the tensors and whatever
/// else the process needs.
int64_t peak_process_memory_bytes(c10::Device device);
void reset_peak_memory(c10::Device device);

}  // namespace sdp
