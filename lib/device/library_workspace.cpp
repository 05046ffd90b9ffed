#include "device/library_workspace.h"

#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAContextLight.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <shared_mutex>

#include "memory/allocations.h"
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

}  // namespace sdp
