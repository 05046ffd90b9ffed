#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <string>

#include "spec/experiment_spec.h"

namespace sdp {

/// A peer that does not take part for so long counts as lost.
inline constexpr std::chrono::minutes kCollectiveTimeout{10};

/// The device of a process: GPU `local_rank` or the CPU. UsageError where CUDA is asked for and there is
/// none, or fewer GPUs than local processes.
c10::Device choose_device(DeviceKind kind, int local_rank);

/// GPUs that processes of this host may use; 0 for a run on the CPU.
int device_count(DeviceKind kind);

/// Shares the host's cores among its processes: sets and returns this process's number of threads,
/// max(1, cores / local_world).
int use_cores_of_one_process(int local_world);

std::string device_name(c10::Device device);

}  // namespace sdp
