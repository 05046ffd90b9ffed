#pragma once

// Memory that cuBLAS takes from LibTorch's allocator for each thread that computes products, and keeps. It
// does not depend on the model or the batch, so it is counted separately from a step's tensors.

#include <c10/core/Device.h>

#include <cstdint>

namespace sdp {

/// Makes cuBLAS allocate its workspace now, for the calling thread and for autograd's thread of the device,
/// which are the threads that compute a step's products, and leaves it out of the counted tensors
/// (memory/allocations.h). Does nothing on a CPU. The device must be the current one.
void allocate_library_workspace(c10::Device device);

/// Bytes of both workspaces: twice at::cuda::getChosenWorkspaceSize(), which depends on the GPU and on
/// CUBLAS_WORKSPACE_CONFIG. 0 on a CPU.
int64_t library_workspace_bytes(c10::Device device);

}  // namespace sdp
