#pragma once

// A call of an operator in a step, with the shapes of its tensors and without their values, and from these
// what it computes and moves.

#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <variant>
#include <vector>

namespace sdp {

struct RecordedTensor {
  std::vector<int64_t> sizes;
  c10::ScalarType type = c10::ScalarType::Float;

  double bytes() const;
};

/// A tensor, a list of tensors, or any other argument as it was (none for an undefined tensor).
using RecordedArgument = std::variant<c10::IValue, RecordedTensor, std::vector<RecordedTensor>>;

/// A call that computes values; views and allocations are not recorded.
struct RecordedCall {
  c10::OperatorName op{"", ""};
  std::vector<RecordedArgument> arguments;
  std::vector<RecordedTensor> results;  ///< also those that are computed in place
  bool is_recomputation = false;        ///< of the forward pass, during the backward pass

  /// Throws std::bad_variant_access if the argument is not a tensor.
  const RecordedTensor& tensor(size_t argument) const {
    return std::get<RecordedTensor>(arguments.at(argument));
  }
  const c10::IValue& value(size_t argument) const { return std::get<c10::IValue>(arguments.at(argument)); }
};

RecordedTensor shape_of(const at::Tensor& tensor);
RecordedArgument recorded(const c10::IValue& argument);

// What an operator computes and moves, from the shapes of a call. The only place that knows operators by
// name, besides copies_of_call.

struct ProductSize {
  double m = 0, k = 0, n = 0;
  double count = 1;
  double computed = 1;  ///< as in Product
};

struct CallCost {
  std::vector<ProductSize> products;
  double bytes = 0;  ///< read and written: every argument and result once
};

/// For the batch that was recorded.
CallCost cost_of(const RecordedCall& call);

/// Copies that an operator's CPU kernel makes of its arguments and results, and frees again.
struct KernelCopies {
  int64_t bytes = 0;
  bool is_convolution = false;
};

/// Of convolutions, by oneDNN, which computes in a layout of its own, or by columns; of layer norms of
/// strided tensors; and of elementwise operators on tensors of different types, which ATen's TensorIterator
/// converts to the wider type. No copies for all other operators.
KernelCopies copies_of_call(const char* op, c10::ArrayRef<const c10::IValue> arguments);

}  // namespace sdp
