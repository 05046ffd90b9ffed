#pragma once

// Operations of transformer branches that save only what their gradients need. Norms and rotations compute in
// fp32 internally (fp64 for fp64 tensors) and return the type of their input.
//
// Letters: B batch, T tokens, W width of the residual stream, H hidden width, N heads, D elements per head.

#include <ATen/core/Tensor.h>

#include <vector>

namespace sdp {

/// weight * x / sqrt(mean(x^2) + eps) over the last dimension (Zhang and Sennrich 2019), rounded to x's type
/// before the product, as in LlamaRMSNorm. x [B, T, W], weight [W], whose type may be wider than x's. Saves x
/// and 1 / sqrt(..) [B, T, 1] for the backward pass.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// Products of x [.., W] with weights [H_i, W], each [.., H_i]. The gradients of x are summed in the products
/// instead of one by one afterwards. Saves x if a weight is trained, and the weights.
std::vector<at::Tensor> linears(const at::Tensor& x, at::TensorList weights);

/// silu(gate) * up (Shazeer 2020), both [B, T, H]. Saves gate and up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Cosines and sines of the rotary position embedding (Su et al. 2021), [T, 1, D / 2]: position t rotates
/// pair i by t times the frequency of i.
struct RotaryTable {
  at::Tensor cos, sin;
};

/// The angles per position, theta^(-2 i / D) [D / 2], on `like`'s device, in the type in which rotations of
/// `like`'s type are computed.
at::Tensor rotary_frequencies(int64_t head_size, double theta, const at::Tensor& like);
RotaryTable rotary_table(int64_t tokens, const at::Tensor& frequencies);

/// x [B, T, N, D] with the pairs (i, i + D / 2) of each head rotated, as in transformers' rotate_half. Saves
/// the table.
at::Tensor rotate(const at::Tensor& x, const RotaryTable& table);

/// Attention, causal or not: q [B, T, N, D], k and v [B, T, N_kv, D], each key/value head serving N / N_kv
/// heads; result [B, T, N * D]. Saves q, k, v, the result and the logarithms of the softmax denominators [B,
/// N, T]. If the fused kernel does not support grouped queries, k and v are saved repeated to N heads.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal);

}  // namespace sdp
