#pragma once

#include <ATen/core/Tensor.h>

#include "data/dataset.h"
#include "spec/experiment_spec.h"

namespace sdp {

/// What a model is given and what it should say.
struct TensorBatch {
  at::Tensor input = {};         ///< images [B, C, H, W] in the compute type, or tokens [B, T] int64
  at::Tensor labels = {};        ///< [B] int64, or the tokens that follow [B, T] int64
  at::Tensor mixed_labels = {};  ///< [B] int64, undefined where nothing was mixed (data/mixing.h)
  double mix = 1;                ///< share of `labels`; the rest is that of mixed_labels
};

TensorBatch to_tensors(const Batch& batch, Precision precision, at::Device device);

}  // namespace sdp
