#pragma once

// The losses of models. That of a language model is computed with its head, for a few rows at a time: the
// logits of all tokens at once, [N, V] in fp32 and again as log-probabilities, would be the largest tensors
// of a step: 8 GiB for 16,384 tokens and a vocabulary of 65,536.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "layers/model.h"

namespace sdp {

/// Number of rows whose logits a language model's loss computes together: at
/// most 16 MiB of fp32 logits, which a CPU's cache may hold, but at least 256 rows, or 4,096 with device
/// kernels (ops/availability.h). With fewer rows, the products are slow. A power of two, as the number of
/// tokens usually is, so that the last chunk is as large as the others.
constexpr int64_t logit_rows_at_a_time(int64_t vocabulary, bool device_kernels) {
  constexpr int64_t kMostElements = int64_t{1} << 22;
  const int64_t rows = std::max<int64_t>(kMostElements / vocabulary, device_kernels ? 4096 : 256);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
}

/// Mean cross-entropy of linear(x, weight) and labels, with label smoothing: a scalar in fp32, or fp64 for
/// fp64 inputs. x [N, W], weight [V, W] of the same type, labels [N] int64.
///
/// If x or the weight requires a gradient, both gradients are computed with the loss, chunk by chunk, so that
/// no logits are computed twice (as in Liger-Kernel's fused linear cross-entropy, Hsu et al. 2024). The
/// gradients are saved for the backward pass instead of x: [N, W] in x's type and [V, W] in the loss's type.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                double label_smoothing, int64_t rows_at_a_time);

/// What a model is trained to predict.
struct Targets {
  at::Tensor labels;             ///< [B] int64, or the next token at each position, [B, T] int64
  at::Tensor mixed_labels = {};  ///< [B] int64, undefined if nothing was mixed (data/augment.h)
  double mix = 1;                ///< weight of `labels`; mixed_labels have the rest
};

struct TrainingLoss {
  at::Tensor loss;
  /// Number of images whose label the model predicts, before this batch's update: one int64 on the device.
  /// Undefined for language models and for mixed images, which have two labels.
  at::Tensor correct = {};
};

/// Mean cross-entropy between the labels and the logits that the head computes from `features`, [B, W] or [B,
/// T, W], in fp32 (fp64 for features in fp64). For mixed images, the mean of both labels' cross-entropies
/// weighted by their shares. A language model's logits are never materialized in full.
TrainingLoss training_loss(const at::Tensor& features, const Head& head, const Targets& targets,
                           double label_smoothing);

/// Sums over the predictions for evaluation, each multiplied by `weights`, [R, N] fp64: [R, 5] fp64 of loss,
/// correct predictions, labels among the five largest logits (0 unless `counts_top5`), predictions, squared
/// loss. Features as above, labels [B] or [B, T]; the N logits are computed a chunk of rows at a time.
at::Tensor prediction_sums(const at::Tensor& features, const Head& head, const at::Tensor& labels,
                           const at::Tensor& weights, bool counts_top5);

}  // namespace sdp
