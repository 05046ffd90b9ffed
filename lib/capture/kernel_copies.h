#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>

namespace sdp {

/// Copies that an operator's CPU kernel makes of its arguments and results, and frees again.
struct KernelCopies {
  int64_t bytes = 0;
  bool is_convolution = false;
};

/// Of convolutions, by oneDNN, which computes in a layout of its own, or by columns, and of elementwise
/// operators on tensors of different types, which ATen's TensorIterator converts to the wider type. No copies
/// for all other operators.
KernelCopies copies_of_call(const char* op, c10::ArrayRef<const c10::IValue> arguments);

}  // namespace sdp
