#pragma once

// What a library's state dict has beside parameters and statistics.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "spec/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// int64 tensors by name: torchvision's count of BatchNorm updates (num_batches_tracked) and Swin's indices
/// of relative positions.
std::map<std::string, at::Tensor> library_tensors(const ModelSpec& spec, const ModelLayout& layout,
                                                  int64_t batch_norm_updates);

}  // namespace sdp
