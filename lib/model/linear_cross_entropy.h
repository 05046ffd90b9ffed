#pragma once

// The end of a language model: its head's logits and their cross-entropy, in one pass over a few rows at a
// time. Logits of every token at once, [N, V] in fp32 and again as log-probabilities, would be the largest
// tensors of a step: 8 GiB for 16,384 tokens of a vocabulary of 65,536.

#include <ATen/core/Tensor.h>

namespace sdp {

/// Mean cross-entropy of linear(x, weight) and labels, with label smoothing, in fp32 (fp64 for fp64): a
/// scalar. x [N, W], weight [V, W] of the same type, labels [N] int64.
///
/// Where x or the weight asks for a gradient, both gradients are computed with the loss, chunk by chunk, so
/// that no logits are computed twice (as Liger-Kernel's fused linear cross-entropy does, Hsu et al. 2024);
/// they, not x, stay until the backward pass: [N, W] in x's type and [V, W] in the loss's.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                double label_smoothing, int64_t rows_at_a_time);

}  // namespace sdp
