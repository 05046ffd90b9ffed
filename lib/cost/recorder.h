#pragma once

// Records what a computation would allocate and which operators it calls, on tensors of LibTorch's "meta"
// device, which have shapes and no values. (The operators of a computation on another device, too.)

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cost/recorded_call.h"
#include "cost/step_capture.h"

namespace sdp {

struct RecordedEvent {
  CaptureEvent::What what = CaptureEvent::What::kTensor;
  int64_t bytes = 0;
  int64_t tensor = 0;  ///< number of the allocated or freed storage
  int parameter = -1;
};

struct RecordedPass {
  std::vector<RecordedEvent> events;
  std::vector<RecordedCall> calls;
};

/// One layer group of the model.
struct RecordedLayerGroup {
  RecordedPass forward, backward;
};

struct Recording;

/// Whether the current thread's recording is with device kernels.
bool records_device_kernels();

/// Records the current thread from its construction to finish(). One at a time per thread.
class Recorder {
 public:
  /// With `device_kernels`, the operators of ops/ops.h are computed as a device does: by one kernel each.
  Recorder(size_t layer_groups, bool device_kernels);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// From here on the forward pass is in this layer group.
  void enter(size_t layer_group);
  /// From here on operations are the backward pass's. Each belongs to the layer group whose operation it is
  /// the gradient of.
  void begin_backward();
  void gradient_ready(int parameter, const at::Tensor& gradient);
  /// Ends the recording. What is freed later is not recorded.
  std::vector<RecordedLayerGroup> finish();

 private:
  std::shared_ptr<Recording> recording_;
  at::CallbackHandle handle_ = 0;
};

/// Adds to LibTorch what its "meta" device lacks for the models: for each operator, the sizes of the results
/// and nothing else. (PyTorch has these in Python, in torch/_meta_registrations.py.) Adds them once.
void add_meta_kernels();

}  // namespace sdp
