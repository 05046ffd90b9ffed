#pragma once

// Re-estimated BatchNorm statistics of a checkpoint, kept in its folder. Estimating them takes most of the
// time of an evaluation after a short run, and the run, `eval` and `export` need the same ones.

#include <filesystem>
#include <string>

#include "data/dataset.h"
#include "engine/full_model.h"
#include "experiment/spec/experiment_spec.h"

namespace sdp {

class KeptStatistics {
 public:
  /// Statistics for the model's branch scale, estimated as `spec` says, in safetensors. The file's name has a
  /// hash of all that they depend on besides the checkpoint's values: model, data, batches and precision.
  KeptStatistics(const std::filesystem::path& checkpoint, const ExperimentSpec& spec,
                 const DataIdentity& training_data, const FullModel& model);

  /// Whether the model now has the kept statistics; false if there are none, or none that can be read.
  bool load(FullModel& model) const;
  /// Failures are ignored: the folder may be read-only.
  void save(FullModel& model) const;

 private:
  std::filesystem::path path_;
};

}  // namespace sdp
