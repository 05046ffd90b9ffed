#pragma once

#include <ATen/core/Tensor.h>

#include "experiment/spec/train_spec.h"
#include "feed/batch.h"
#include "model/model.h"

namespace sdp {

struct TrainingLoss {
  at::Tensor loss;
  /// Number of images whose label the model predicts, before this batch's update: one int64 on the device.
  /// Undefined for language models and for mixed images, which have two labels.
  at::Tensor correct = {};
};

/// Mean cross-entropy between the batch's labels and the logits that the head computes from `features`, [B,
/// W] or [B, T, W], in fp32 (fp64 in an fp64 run), with the spec's label smoothing. For mixed images, the
/// mean of both labels' cross-entropies weighted by their shares. A language model's logits are never
/// materialized in full.
TrainingLoss training_loss(const at::Tensor& features, const Head& head, const TensorBatch& batch,
                           const TrainSpec& spec);

}  // namespace sdp
