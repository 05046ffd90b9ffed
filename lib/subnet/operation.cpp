#include "subnet/operation.h"

namespace sdp {

Operation Operation::slice(int64_t width, int64_t hidden_width) const {
  Operation result = *this;
  if (sliced == SlicedSize::kIn) result.in = in * width / hidden_width;
  if (sliced == SlicedSize::kOut) result.out = out * width / hidden_width;
  return result;
}

bool has_product(OperationKind kind) {
  return kind < OperationKind::kBatchNorm;
}

double flops_of(const Operation& operation, Pass pass) {
  const auto rows = static_cast<double>(operation.rows);
  const auto in = static_cast<double>(operation.in);
  const auto out = static_cast<double>(operation.out);
  const double of_weight = pass == Pass::kBackward ? 1 : 0;
  const double of_input = operation.input_needs_gradient ? 1 : 0;
  // Operations with a weight: one product in the forward pass and one for each gradient.
  const double times = pass == Pass::kForward ? 1 : of_weight + of_input;
  switch (operation.kind) {
    case OperationKind::kLinear:
    case OperationKind::kLinearCrossEntropy:
      return times * 2 * rows * in * out;
    case OperationKind::kConvolution:
      return times * 2 * rows * in * out * static_cast<double>(operation.kernel * operation.kernel);
    // Products of activations: two in the forward pass, and two for the gradients of each. The fused kernel
    // does not save the probabilities and multiplies q and k again.
    case OperationKind::kWindowAttention:
      return (pass == Pass::kForward ? 2 : 4) * 2 * rows * static_cast<double>(operation.span) * in;
    case OperationKind::kCausalAttention:
      return (pass == Pass::kForward ? 2 : 5) * 2 * rows * static_cast<double>(operation.span) * in;
    default:
      return 0;
  }
}

}  // namespace sdp
