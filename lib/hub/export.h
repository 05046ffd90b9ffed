#pragma once

#include <filesystem>

#include "checkpoint/checkpointing.h"
#include "engine/full_model.h"
#include "hub/model_config.h"

namespace sdp {

/// What can be done before the work of an export: makes the folder of `out`. Throws UsageError if it cannot
/// be written, if `out` exists, or if there is a config.json or another file to write that `export` did not
/// write.
ExportOrigin prepare_export(const ExperimentSpec& spec, const std::filesystem::path& run_dir,
                            const std::filesystem::path& out);

// Both write safetensors, one tensor at a time, with the tensor names of the library that users load them
// with (torchvision, transformers). They also write config.json beside it (hub/model_config.h), and the
// files that an import kept (kImportedFolder), or the tokenizer if the shards' folder has it
// (data/sets/token_origin.h). Values have the spec's precision, fp32 or fp64. Throws DataError if a
// file cannot be written. Progress is reported in bytes.

/// The assembled full model: parameters with the model's branch scale applied, BatchNorm statistics and the
/// library's other tensors. The metadata records step, plan, branch scale and the source of the statistics
/// (`recalibrate_batches`; 0: averages over the owners).
void export_model(FullModel& model, const Experiment& experiment, const Manifest& manifest,
                  const ExportOrigin& origin, const std::filesystem::path& out,
                  const OnProgress& on_progress);

/// The worker's subnetwork as a smaller model. Throws UsageError under backward masking, where every worker
/// has the whole model.
void export_subnetwork(const CheckpointReader& reader, const Experiment& experiment, int worker,
                       const ExportOrigin& origin, const std::filesystem::path& out,
                       const OnProgress& on_progress);

}  // namespace sdp
