#pragma once

// A batch as the model's input, in tensors on its device.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "model/loss.h"
#include "subnet/element_type.h"

namespace sdp {

/// Input and targets of a model.
struct TensorBatch {
  at::Tensor input = {};         ///< images [B, C, H, W] in the compute type, or tokens [B, T] int64
  at::Tensor labels = {};        ///< as in Targets
  at::Tensor mixed_labels = {};  ///< as in Targets
  double mix = 1;                ///< as in Targets

  std::vector<int64_t> samples = {};      ///< [B], indices in the data set
  std::vector<std::string> skipped = {};  ///< the fault of each image that was skipped

  Targets targets() const { return {.labels = labels, .mixed_labels = mixed_labels, .mix = mix}; }
};

/// On a CPU, values that need no conversion are not copied. On CUDA, they are copied through pinned memory in
/// the current stream, and the host does not wait for the copy.
TensorBatch to_tensors(Batch batch, Precision precision, at::Device device);

}  // namespace sdp
