#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "experiment/experiment_spec.h"

namespace sdp {

struct ExportRequest {
  std::filesystem::path run_dir;
  int64_t step = 0;  ///< of the checkpoint
  std::filesystem::path out;
  std::optional<int> worker = {};  ///< this worker's subnetwork instead of the assembled model
  bool average = false;            ///< the moving average of the values (optimizer.ema_decay)
};

/// Writes the model of a checkpoint, with the branch scale and the BatchNorm statistics that the evaluation
/// of the run would use, and says on standard output what was written. A worker's subnetwork is a smaller
/// model.
///
/// Tensors are safetensors, with the names of the library that users load them with (torchvision,
/// transformers), written one at a time. Beside them stand config.json (hub/model_config.h), and the files
/// that an import kept (kImportedFolder), or the tokenizer if the shards' folder has it
/// (data/tokens.h). Values have the spec's precision, fp32 or fp64. The metadata of the full model
/// record step, plan, branch scale and the source of the statistics (`recalibrate_batches`; 0: averages over
/// the owners).
///
/// Throws DataError if there is no checkpoint or a file cannot be written, and UsageError if `out` cannot be
/// written or exists, if there is a config.json or another file to write that `export` did not write, or for
/// a subnetwork under backward masking, where every worker has the whole model.
void export_run(ExperimentSpec spec, const ExportRequest& request);

}  // namespace sdp
