#pragma once

#include <filesystem>

#include "spec/experiment_spec.h"

namespace sdp {

/// Writes the assembled full model of a run's newest checkpoint as safetensors with torchvision's names, one
/// tensor at a time: parameters as fp32 (fp64 in an fp64 run) master values with the spec's branch scale
/// folded in, BatchNorm statistics averaged over the owners, num_batches_tracked. The metadata records step,
/// plan and branch scale. DataError when there is no checkpoint or `out` cannot be written.
void export_model(ExperimentSpec spec, const std::filesystem::path& run_dir,
                  const std::filesystem::path& out);

}  // namespace sdp
