#pragma once

// Tensors of a library's state dict besides parameters and statistics.

#include <ATen/core/Tensor.h>

#include "model/model_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// int64 tensors by name: the model's constants, and torchvision's count of BatchNorm updates
/// (num_batches_tracked).
LibraryConstants library_tensors(const ModelSpec& spec, const ModelLayout& layout,
                                 int64_t batch_norm_updates);

}  // namespace sdp
