#pragma once

// A batch as the model takes it, in tensors on its device.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "subnet/element_type.h"

namespace sdp {

/// What a model is given and what it should say.
struct TensorBatch {
  at::Tensor input = {};         ///< images [B, C, H, W] in the compute type, or tokens [B, T] int64
  at::Tensor labels = {};        ///< [B] int64, or the tokens that follow [B, T] int64
  at::Tensor mixed_labels = {};  ///< [B] int64, undefined where nothing was mixed (data/pipeline/mixing.h)
  double mix = 1;                ///< share of `labels`; the rest is that of mixed_labels

  std::vector<int64_t> samples = {};      ///< [B], indices in the data set
  std::vector<std::string> skipped = {};  ///< what is wrong with each image that was passed over
};

/// On a CPU, values that need no conversion are not copied. On CUDA they go through pinned memory, and the
/// host does not wait for the copy, which is made in the current stream.
TensorBatch to_tensors(Batch batch, Precision precision, at::Device device);

}  // namespace sdp
