#pragma once

#include <ATen/core/Tensor.h>

#include "feed/batch.h"
#include "spec/experiment_spec.h"

namespace sdp {

/// Mean cross-entropy of logits [B, K] or [B, T, K] and the batch's labels, in fp32 (fp64 in an fp64 run),
/// with the spec's label smoothing. Of mixed images, the mean of both labels' by their shares.
at::Tensor classification_loss(const at::Tensor& logits, const TensorBatch& batch, const TrainSpec& spec);

}  // namespace sdp
