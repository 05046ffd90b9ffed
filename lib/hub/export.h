#pragma once

#include <filesystem>

#include "checkpoint/checkpointing.h"
#include "engine/full_model.h"

namespace sdp {

// Both write safetensors with the names of the library whose users load them (torchvision, transformers), one
// tensor at a time, and config.json beside it (hub/model_config.h), with the tokenizer where the shards'
// folder has it (data/sets/token_origin.h). Values are of the spec's precision, fp32 or fp64. UsageError
// where config.json is somebody else's, DataError when a file cannot be written. Progress is told in bytes.

/// The assembled full model: parameters with the branch scale it has, BatchNorm statistics and what else the
/// library keeps. The metadata records step, plan, branch scale and where the statistics come from
/// (`recalibrate_batches`; 0: averages over the owners).
void export_model(FullModel& model, const Experiment& experiment, const Manifest& manifest,
                  const std::filesystem::path& out, const OnProgress& on_progress);

/// The worker's subnetwork as a smaller model of its own. UsageError under backward masking, where every
/// worker has the whole model.
void export_subnetwork(const CheckpointReader& reader, const Experiment& experiment, int worker,
                       const std::filesystem::path& out, const OnProgress& on_progress);

}  // namespace sdp
