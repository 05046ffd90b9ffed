#pragma once

// Memory of this process's tensors, by kind and at the step's peak. Counted where memory is allocated and
// freed, so that everything is counted exactly once: in a wrapper of LibTorch's CPU allocator, and in the
// trace of its CUDA allocator.
//
// Bytes are those requested; the CUDA allocator rounds them up to multiples of 512. The kind of an allocation
// is that of the innermost MemoryScope of its thread. Tensors allocated elsewhere, such as gradients by
// autograd, can be assigned another kind.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "process/memory_kinds.h"

namespace sdp {

/// Starts counting all later allocations on the device, permanently. Call it once per process, before
/// allocating the tensors to be counted. A second call does nothing.
void count_allocations(c10::Device device);

/// Allocated now, and at the peak since the last reset_peak(). All zeros if nothing is counted.
MemoryByKind allocated_now();
MemoryByKind allocated_at_peak();
/// Sets the peak to what is allocated now.
void reset_peak();

/// During its lifetime, this thread's allocations have the given kind.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const MemoryKind outer_;
};

/// Assigns the tensor's memory to this kind. Does nothing if the memory is not counted.
void assign_kind(const at::Tensor& tensor, MemoryKind kind);
/// Stops counting this memory, as it is not part of a step. Does nothing if it is not counted.
void leave_out(const void* data);
void leave_out(const at::Tensor& tensor);

}  // namespace sdp
