#pragma once

#include <ATen/core/Tensor.h>

#include "model/model.h"

namespace sdp {

/// What a model is trained to predict.
struct Targets {
  at::Tensor labels;             ///< [B] int64, or the next token at each position, [B, T] int64
  at::Tensor mixed_labels = {};  ///< [B] int64, undefined if nothing was mixed (data/pipeline/mixing.h)
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

}  // namespace sdp
