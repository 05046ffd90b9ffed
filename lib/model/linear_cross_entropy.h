#pragma once

// The head and the loss of a language model: logits and their cross-entropy, computed for a few rows at a
// time. The logits of all tokens at once, [N, V] in fp32 and again as log-probabilities, would be the largest
// tensors of a step: 8 GiB for 16,384 tokens and a vocabulary of 65,536.

#include <ATen/core/Tensor.h>

namespace sdp {

/// Mean cross-entropy of linear(x, weight) and labels, with label smoothing: a scalar in fp32, or fp64 for
/// fp64 inputs. x [N, W], weight [V, W] of the same type, labels [N] int64.
///
/// If x or the weight requires a gradient, both gradients are computed with the loss, chunk by chunk, so that
/// no logits are computed twice (as in Liger-Kernel's fused linear cross-entropy, Hsu et al. 2024). The
/// gradients are saved for the backward pass instead of x: [N, W] in x's type and [V, W] in the loss's type.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                double label_smoothing, int64_t rows_at_a_time);

}  // namespace sdp
