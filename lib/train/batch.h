#pragma once

#include <ATen/core/Tensor.h>

#include "data/loader.h"
#include "spec/experiment_spec.h"

namespace sdp {

struct TensorBatch {
  at::Tensor images;  ///< [B, C, H, W] in the compute type
  at::Tensor labels;  ///< [B] int64
};

TensorBatch to_tensors(const ImageBatch& batch, ImageShape shape, Precision precision, at::Device device);

}  // namespace sdp
