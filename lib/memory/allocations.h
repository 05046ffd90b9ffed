#pragma once

// What the tensors of this process take, by kind and at the step's peak. Counted where memory is given out
// and comes back, so that nothing is forgotten and nothing counted twice: a layer around LibTorch's CPU
// allocator, and the trace of its CUDA allocator.
//
// Bytes are those asked for; the CUDA allocator rounds them up to multiples of 512. The kind of an allocation
// is that of the innermost MemoryScope of its thread; tensors that somebody else allocates, as autograd does
// gradients, can be booked over.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "memory/kinds.h"

namespace sdp {

/// Begins to count what is allocated on the device from now on, for good. Once a process, before the tensors
/// that are to be counted. A second call does nothing.
void count_allocations(c10::Device device);

/// Standing now, and when the most stood since the last reset_peak(). All zeros where nothing is counted.
MemoryByKind allocated_now();
MemoryByKind allocated_at_peak();
/// The peak is what stands now.
void reset_peak();

/// While it lives, this thread's allocations are of the kind.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const MemoryKind outer_;
};

/// The tensor's memory is of this kind from now on. Does nothing where it is not counted.
void book(const at::Tensor& tensor, MemoryKind kind);
/// The tensor's memory is no longer counted: it is no part of a step.
void leave_out(const at::Tensor& tensor);

}  // namespace sdp
