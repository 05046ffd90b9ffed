#pragma once

#include <filesystem>

#include "checkpoint/manifest.h"
#include "train/full_model.h"

namespace sdp {

/// Writes an assembled full model as safetensors with torchvision's names, one tensor at a time: parameters
/// with the branch scale the model has, its BatchNorm statistics, num_batches_tracked. `type` is what the
/// values are read in, fp32 or fp64. The metadata records step, plan, branch scale and where the statistics
/// come from
/// (`recalibrate_batches`; 0: averages over the owners). DataError when `out` cannot be written.
void export_model(FullModel& model, const Manifest& manifest, ElementType type, int64_t recalibrate_batches,
                  const std::filesystem::path& out);

}  // namespace sdp
