#pragma once

// Pieces of transformer branches that keep what their gradients need and no more. Norms and
// rotations compute in fp32 inside (fp64 for fp64 tensors) and return the type of their input.
//
// Letters: B batch, T tokens, W width of the residual stream, H hidden width, N heads, D elements of a head.

#include <ATen/core/Tensor.h>

namespace sdp {

/// weight * x / sqrt(mean(x^2) + eps) over the last dimension (Zhang and Sennrich 2019), rounded to x's type
/// before the product as LlamaRMSNorm does. x [B, T, W], weight [W], which may be wider than x. Keeps x and
/// 1 / sqrt(..) [B, T, 1] for the backward pass.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// LayerNorm (Ba et al. 2016) over the last dimension, rounded to x's type at the end. x [.., W], weight and
/// bias [W], which may be wider than x. Keeps x and, of each vector, mean and 1 / deviation.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

/// silu(gate) * up (Shazeer 2020), both [B, T, H]. Keeps gate and up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Cosines and sines of the rotary position embedding (Su et al. 2021), [T, 1, D / 2]: position t turns pair
/// i by the angle t * theta^(-2 i / D).
struct RotaryTable {
  at::Tensor cos, sin;
};

/// On `like`'s device, in the type that rotations of its type are computed in.
RotaryTable rotary_table(int64_t tokens, int64_t head_size, double theta, const at::Tensor& like);

/// x [B, T, N, D] with pairs (i, i + D / 2) of each head turned, as transformers' rotate_half does. Keeps the
/// table.
at::Tensor rotate(const at::Tensor& x, const RotaryTable& table);

/// Causal attention: q [B, T, N, D], k and v [B, T, N_kv, D], each of them serving N / N_kv heads; result
/// [B, T, N * D]. Keeps q, k, v, the result and the logarithm of the softmax's denominators [B, N, T]; k and
/// v repeated to N heads where the fused kernel does not share heads by itself.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace sdp
