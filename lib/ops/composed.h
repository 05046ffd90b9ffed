#pragma once

// The operators of ops/ops.h as compositions of ATen's: how a CPU computes them, and what device kernels are
// tested against.

#include <ATen/core/Tensor.h>

#include <tuple>

namespace sdp::ops::composed {

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                     const at::Tensor& weight, const at::Tensor& scale,
                                                     bool of_weight);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& gradient, const at::Tensor& gate,
                                                   const at::Tensor& up);
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse);
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool with_gradient);

}  // namespace sdp::ops::composed
