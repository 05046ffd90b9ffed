#pragma once

// The operators of ops/ops.h as plain formulas in fp64, whose gradients are autograd's.

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

namespace sdp::test {

constexpr double kEps = 1e-5;

inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) {
  return x / (x.pow(2).mean(-1, /*keepdim=*/true) + kEps).sqrt() * weight;
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

/// The formula's value, and its gradients for the arguments if that of the value is `gradient`.
template <class Formula, class... Tensors>
std::vector<at::Tensor> value_and_gradients(const Formula& formula, const at::Tensor& gradient,
                                            const Tensors&... arguments) {
  const std::array leaves = {arguments.detach().to(at::kDouble).clone().requires_grad_()...};
  std::vector<at::Tensor> results = {std::apply(formula, leaves)};
  results.front().backward(gradient.to(at::kDouble));
  for (const at::Tensor& leaf : leaves)
    results.push_back(leaf.grad());
  return results;
}

/// Largest difference, relative to the largest element.
inline double difference(const at::Tensor& ours, const at::Tensor& expected) {
  if (expected.numel() == 0) return ours.numel() == 0 ? 0 : INFINITY;
  const at::Tensor gap = (ours.to(at::kDouble) - expected.to(ours.device(), at::kDouble)).abs().max();
  return gap.item<double>() / std::max(expected.abs().max().item<double>(), 1.0);
}

/// Whether none of these differs more.
inline bool are_within(double tolerance, const std::vector<at::Tensor>& ours,
                       const std::vector<at::Tensor>& expected) {
  return std::ranges::equal(
      ours, expected, [&](const at::Tensor& a, const at::Tensor& b) { return difference(a, b) < tolerance; });
}

/// Of one operator: fp32 sums and exponentials; bf16 rounds each result, and a norm also its product with the
/// scale.
inline double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : type == at::kFloat ? 2e-5 : 1.2e-2;
}

}  // namespace sdp::test
