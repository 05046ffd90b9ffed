#pragma once

// A call of an operator in a step, with the shapes of its tensors and without their values.

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

}  // namespace sdp
