#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "experiment/spec/experiment_spec.h"

namespace sdp {

struct ExportRequest {
  std::filesystem::path run_dir;
  int64_t step = 0;  ///< of the checkpoint
  std::filesystem::path out;
  std::optional<int> worker = {};  ///< this worker's subnetwork instead of the assembled model
  bool average = false;            ///< the moving average of the values (optimizer.ema_decay)
};

/// Writes the model of a checkpoint (hub/export.h), with the branch scale and the BatchNorm statistics that
/// the evaluation of the run would use, and says on standard output what was written. Throws DataError if
/// there is no checkpoint, and the errors of prepare_export and of the other exports.
void export_run(ExperimentSpec spec, const ExportRequest& request);

}  // namespace sdp
