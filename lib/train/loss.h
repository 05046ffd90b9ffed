#pragma once

#include <ATen/core/Tensor.h>

#include "experiment/spec/train_spec.h"
#include "feed/batch.h"
#include "model/model.h"

namespace sdp {

struct TrainingLoss {
  at::Tensor loss;
  /// How many images the model puts into the class of their label, before this batch's update: one int64 on
  /// the device. Undefined of mixed images, which have two labels, and of a language model.
  at::Tensor correct = {};
};

/// Mean cross-entropy of the batch's labels and the logits that the head makes of `features`, [B, W] or
/// [B, T, W], in fp32 (fp64 in an fp64 run), with the spec's label smoothing. Of mixed images, the mean of
/// both labels' by their shares. A language model's logits never stand in full.
TrainingLoss training_loss(const at::Tensor& features, const Head& head, const TensorBatch& batch,
                           const TrainSpec& spec);

}  // namespace sdp
