#pragma once

// The operators of ops/ops.h as plain formulas in fp64, whose gradients are autograd's.

#include <torch/torch.h>

#include <tuple>
#include <vector>

namespace sdp::test {

inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x / (x.pow(2).mean(-1, /*keepdim=*/true) + eps).sqrt() * weight;
}

inline at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return gate * at::sigmoid(gate) * up;
}

/// With the pairs as complex numbers, as in Su et al. 2021.
inline at::Tensor rotate(const at::Tensor& x, const at::Tensor& angle) {
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  const at::Tensor turned = at::complex(half[0], half[1]) * at::polar(at::ones_like(angle), angle);
  return at::cat({at::real(turned), at::imag(turned)}, -1);
}

inline at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::None, -100, smoothing);
}

inline at::Tensor leaf(const at::Tensor& x) {
  return x.detach().to(at::kDouble).clone().requires_grad_();
}

/// Largest difference, relative to the largest element.
inline double difference(const at::Tensor& ours, const at::Tensor& expected) {
  if (expected.numel() == 0) return ours.numel() == 0 ? 0 : INFINITY;
  const at::Tensor gap = (ours.to(at::kDouble) - expected.to(ours.device(), at::kDouble)).abs().max();
  return gap.item<double>() / std::max(expected.abs().max().item<double>(), 1.0);
}

/// Of one operator: fp32 sums and exponentials; bf16 rounds each result, and a norm also its product with the
/// scale.
inline double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : type == at::kFloat ? 2e-5 : 1.2e-2;
}

}  // namespace sdp::test
