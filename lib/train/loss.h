#pragma once

#include <ATen/core/Tensor.h>

#include "experiment/spec/train_spec.h"
#include "feed/batch.h"
#include "model/model.h"

namespace sdp {

/// Mean cross-entropy of the batch's labels and the logits that the head makes of `features`, [B, W] or
/// [B, T, W], in fp32 (fp64 in an fp64 run), with the spec's label smoothing. Of mixed images, the mean of
/// both labels' by their shares. A language model's logits never stand in full.
at::Tensor training_loss(const at::Tensor& features, const Head& head, const TensorBatch& batch,
                         const TrainSpec& spec);

}  // namespace sdp
