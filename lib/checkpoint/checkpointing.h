#pragma once

// Saving and restoring a run. Every process writes its shard, keyed by (kind, parameter, hidden range,
// element range), so that a run can resume with another number of processes and with another plan.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_tensors.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "engine/full_model.h"
#include "experiment/experiment.h"
#include "io/on_progress.h"
#include "telemetry/run_history.h"

namespace sdp {

/// Progress of a run.
struct RunProgress {
  int64_t step = 0;           ///< steps done, including skipped ones
  int64_t skipped_steps = 0;  ///< train.on_nonfinite: skip
  StepOrigin origin = {};
  int64_t metrics_lines = 0;          ///< lines of metrics.jsonl; only rank 0's value is used
  std::set<int64_t> best_steps = {};  ///< of checkpoints to keep; only rank 0's value is used
  DataIdentity training_data = {};    ///< empty if no data was read yet
  DataIdentity test_data = {};
};

/// A manifest without its list of files, for the processes of the experiment.
Manifest manifest_of(const Experiment& experiment, const RunProgress& progress);

/// Contents of spec.yaml, plan.json and run.json in a run folder and in each of its checkpoints.
struct RunDescription {
  std::string spec_yaml;
  std::string plan_json;
  std::string run_json;
};
RunDescription describe_run(const Experiment& experiment, const RunHistory& history);
/// Writes these files into a folder. Returns their entries for a manifest.
std::vector<ManifestFile> write_description(const RunDescription& description,
                                            const std::filesystem::path& folder);

/// Checks whether a run may resume with this data. The order of samples depends on the number of training
/// samples: throws DataError if it differs from the checkpoint's, unless the samples have another length
/// (`is_resized`). Otherwise returns a warning for each data set that has changed.
std::vector<std::string> check_data(const Manifest& manifest, const DataIdentity& training_data,
                                    const DataIdentity& test_data, bool is_resized);

/// Writes one process's file into the folder of an unfinished checkpoint.
ManifestFile write_process_file(TensorFile& tensors, const std::filesystem::path& folder, int process,
                                int processes, const OnProgress& on_progress);

/// Collective. Throws Error on every process if a checkpoint would save a value that is not finite
/// (parameters, optimizer state, BatchNorm statistics). The message names a tensor.
void check_state_is_finite(const Experiment& experiment, Engine& engine, Communicator& comm);

/// For error messages that end a run: "The last checkpoint is of step 10; --resume continues from there."
std::string text_of_last_checkpoint(std::optional<int64_t> step);

struct SavedCheckpoint {
  int64_t bytes = 0;  ///< total size of all processes' files
  std::vector<std::string>
      left{};  ///< rank 0 only: messages about files that could not be removed (CheckpointStore::commit)
};

/// Writes a checkpoint; throws if a value is not finite, as above. Collective; returns on all processes once
/// the checkpoint is complete on disk. Only rank 0's `description` is written. `on_progress` reports this
/// process's own file.
SavedCheckpoint save_checkpoint(const std::filesystem::path& run_dir, const Experiment& experiment,
                                Engine& engine, Communicator& comm, const RunProgress& progress,
                                const RunDescription& description, int threads,
                                const OnProgress& on_progress);

/// How a checkpoint was made.
struct SavedDivision {
  const ExperimentSpec& spec;
  const SubnetPlan& plan;
};

/// Whether the experiment divides the network as the checkpoint does.
bool is_divided_as(const SavedDivision& saved, const Experiment& experiment);

/// Restores the engine and the slots' buffers. If the network is divided in another way, every slot's
/// BatchNorm statistics become the average over the owners; everything else is carried over element by
/// element. Throws DataError if the checkpoint is not of `saved`.
void restore(const CheckpointReader& reader, const SavedDivision& saved, const Experiment& experiment,
             Engine& engine);

/// Both sources below throw DataError if the checkpoint belongs to another experiment.

/// The full model of a checkpoint, read parameter by parameter.
class SavedFullModel : public FullModel {
 public:
  /// Throws UsageError if the checkpoint does not have these values.
  SavedFullModel(const SubnetPlan& plan, const CheckpointReader& reader, const ExperimentSpec& spec,
                 at::Device device, ModelValues values = ModelValues::kCurrent);

 private:
  std::vector<at::Tensor> read_parameters(const std::vector<int>& indices) override;

  const CheckpointReader& reader_;
  Precision precision_;
  at::Device device_;
};

/// Whether the checkpoint has a moving average of the values (ModelValues::kAverage).
bool has_average(const Manifest& manifest, const ExperimentSpec& spec);

/// One worker's subnetwork of a checkpoint, with the BatchNorm statistics of its replica 0.
class SavedSubnetwork : public TensorSource {
 public:
  SavedSubnetwork(const SubnetPlan& plan, const CheckpointReader& reader, const ExperimentSpec& spec,
                  at::Device device, int worker);
  int parts(int branch) const override { return static_cast<int>(plan_.parts_of(worker_, branch).size()); }

 private:
  at::Tensor find_parameter(const std::string& name, int part) const override;
  at::Tensor find_buffer(const std::string& name, int part) const override;

  const SubnetPlan& plan_;
  const CheckpointReader& reader_;
  Precision precision_;
  at::Device device_;
  int worker_;
};

}  // namespace sdp
