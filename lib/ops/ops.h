#pragma once

// Operators that a device computes in one kernel each, and a CPU as a composition of ATen's. They are
// registered with the dispatcher as sdp::NAME, so that captures see them (cost/recorder.h). None of them
// is differentiable; the callers are the autograd functions of model/.
//
// All compute in fp32, or fp64 for fp64 tensors, and return the type of their first tensor unless told
// otherwise.

#include <ATen/core/Tensor.h>

#include <tuple>

namespace sdp::ops {

/// weight * x * scale with scale = (mean(x^2) + eps)^(-1/2) over the last dimension, x * scale being rounded
/// to x's type before the product; and scale, [.., 1] in the type of the computation. x [.., W], weight [W]
/// of the same or a wider type.
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// Gradients of x, and of the weight if wanted, else an undefined tensor. `gradient`: that of rms_norm's
/// result.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                     const at::Tensor& weight, const at::Tensor& scale,
                                                     bool of_weight);

/// silu(gate) * up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Gradients of gate and up.
std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& gradient, const at::Tensor& gate,
                                                   const at::Tensor& up);

/// x [B, T, N, D] with the pairs (i, i + D / 2) rotated by the angles of token and i, whose cosines and sines
/// are [T, 1, D / 2] in the type of the computation; backwards if `inverse`.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse);

/// Cross-entropy of each row with label smoothing: log sum exp z - (1 - s) z_label - s mean z, [R, 1] in the
/// type of the computation. logits z [R, V], labels [R] int64. With `with_gradient`, the logits are replaced
/// by their gradient, softmax z - (1 - s) onehot(label) - s / V; without, they may be overwritten. So may
/// the elements that follow each row, where the rows' stride is larger than V.
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool with_gradient);

/// The same as compositions of ATen's operators: how a CPU computes them, and what device kernels are tested
/// against.
namespace composed {

decltype(ops::rms_norm) rms_norm;
decltype(ops::rms_norm_backward) rms_norm_backward;
decltype(ops::swiglu) swiglu;
decltype(ops::swiglu_backward) swiglu_backward;
decltype(ops::rotate) rotate;
decltype(ops::cross_entropy_) cross_entropy_;

}  // namespace composed

}  // namespace sdp::ops
