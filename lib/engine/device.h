#pragma once

// The device that a process computes on.

#include <ATen/core/Generator.h>
#include <ATen/core/TensorBody.h>
#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/ranks.h"
#include "experiment/train_spec.h"
#include "subnet/nodes.h"

namespace sdp {

/// The device of a process: the CPU, or the GPU with number local_rank among those it can see, modulo their
/// number. A scheduler may show each process only its own GPU. Throws UsageError if CUDA is requested and no
/// GPU is visible.
c10::Device choose_device(DeviceKind kind, const Ranks& ranks);

/// For the built-in launcher, whose processes all see the same GPUs: throws UsageError if there are more
/// processes than GPUs and NCCL would refuse that (comm/shared_devices.h).
void check_processes(DeviceKind kind, BackendKind backend, int processes);

/// Makes the device current, starts counting its allocations and allocates cuBLAS's workspace. Disables TF32
/// in cuDNN convolutions, which LibTorch enables by default, so that fp32 is exact. Also disables cuDNN
/// attention, whose backward pass gives NaN with Swin's masks
/// (https://github.com/pytorch/pytorch/issues/196678); the choice among the other kernels is unchanged.
void prepare_device(c10::Device device);

/// train.deterministic: does what torch.use_deterministic_algorithms(True) does, and selects attention
/// kernels with a deterministic backward pass. Call it before the process first uses a device.
void use_deterministic_kernels();

/// Number of GPUs that processes of this host may use; 0 for a run on the CPU.
int device_count(DeviceKind kind);

/// Sets this process's number of threads, for which it has cores of its own.
void use_own_cores();

/// Collective. Divides the cores that several processes of a host may use (threads_of in comm/cores.h), sets
/// this process's number of threads, and returns warnings_about() the cores of all processes.
std::vector<std::string> divide_cores(Communicator& comm);

/// A new, unshared random-number generator for this device.
at::Generator make_generator(c10::Device device);

std::string device_name(c10::Device device);
/// Name given by the driver, "NVIDIA H200"; empty for a CPU.
std::string gpu_name(c10::Device device);

/// Memory size of the current device: the GPU's, or the host's.
int64_t device_memory_bytes(c10::Device device);

/// Number of multiprocessors of a GPU; 1 for a CPU.
int64_t multiprocessors(c10::Device device);

/// Waits until the device has finished all queued work. Does nothing on a CPU.
void synchronize(c10::Device device);

/// Peak process memory: on CUDA, what the caching allocator has reserved on the device since the last
/// reset_peak_memory(); on a CPU, the process's peak resident memory. Includes the tensors and all other
/// memory of the process.
int64_t peak_process_memory_bytes(c10::Device device);
void reset_peak_memory(c10::Device device);

// Memory that cuBLAS takes from LibTorch's allocator for each thread that computes products, and keeps. It
// does not depend on the model or the batch, so it is counted separately from a step's tensors.

/// Makes cuBLAS allocate its workspace now, for the calling thread and for autograd's thread of the device,
/// which are the threads that compute a step's products, and leaves it out of the counted tensors
/// (process/allocations.h). Does nothing on a CPU. The device must be the current one.
void allocate_library_workspace(c10::Device device);

/// Bytes of both workspaces: twice at::cuda::getChosenWorkspaceSize(), which depends on the GPU and on
/// CUBLAS_WORKSPACE_CONFIG. 0 on a CPU.
int64_t library_workspace_bytes(c10::Device device);

/// The ranks under which the processes connect: `started`, as numbered by the launcher, with the rank that
/// subnet/nodes.h assigns to its place. Rank i then runs the slots of process i, so that the order of
/// processes is the order of workers on any nodes. Rank 0 is unchanged, as the others connect to its address.
/// Throws UsageError if a placement other than in_order is requested and the launcher did not number the
/// ranks node by node with equally many per node.
Ranks placed_ranks(const Ranks& started, const NodeMap& nodes);

/// A run that takes at least this long is measured precisely enough.
inline constexpr double kEnoughSeconds = 0.02;

/// Seconds of the fastest of a few runs after one warm-up run.
double fastest_s(at::Device device, const std::function<void()>& run);

/// FLOP/s of a square matrix product of random numbers (with equal ones a GPU draws less power and is
/// faster): the smallest side, a power of two, whose product takes long enough.
double product_rate(const at::TensorOptions& options);

inline constexpr const char* kProgramVersion = SDP_VERSION;

}  // namespace sdp
