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

double Flops::of(Pass pass) const {
  if (pass == Pass::kForward) return forward;
  return (pass == Pass::kBackward ? weight_gradient : 0) + input_gradient;
}

Flops& Flops::operator+=(const Flops& other) {
  forward += other.forward;
  weight_gradient += other.weight_gradient;
  input_gradient += other.input_gradient;
  frozen_recompute += other.frozen_recompute;
  return *this;
}

Flops Flops::operator-(const Flops& other) const {
  return {forward - other.forward, weight_gradient - other.weight_gradient,
          input_gradient - other.input_gradient, frozen_recompute - other.frozen_recompute};
}

Flops Flops::operator*(double factor) const {
  return {forward * factor, weight_gradient * factor, input_gradient * factor, frozen_recompute * factor};
}

Flops flops_of(const Operation& operation) {
  const auto rows = static_cast<double>(operation.rows);
  const auto in = static_cast<double>(operation.in);
  Flops flops;
  switch (operation.kind) {
    case OperationKind::kLinear:
    case OperationKind::kConvolution:
    case OperationKind::kLinearCrossEntropy:  // one product in every pass
      flops.forward = 2 * rows * in * static_cast<double>(operation.out) *
                      static_cast<double>(operation.kernel * operation.kernel);
      flops.weight_gradient = flops.forward;
      flops.input_gradient = operation.input_needs_gradient ? flops.forward : 0;
      break;
    // Products of activations: two in the forward pass, and two for the gradients of each. The fused kernel
    // does not save the probabilities and multiplies q and k again.
    case OperationKind::kWindowAttention:
    case OperationKind::kCausalAttention:
      flops.forward = 2 * 2 * rows * static_cast<double>(operation.span) * in;
      flops.input_gradient = (operation.kind == OperationKind::kCausalAttention ? 2.5 : 2) * flops.forward;
      break;
    default:
      break;
  }
  if (operation.recomputed_if_frozen) flops.frozen_recompute = flops.forward;
  return flops;
}

}  // namespace sdp
