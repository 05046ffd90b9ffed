#pragma once

// Saving and restoring a run. Every process writes what it updates, keyed by (kind, parameter, hidden range,
// element range), so that a run can go on with another number of processes.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "checkpoint/checkpoint_keys.h"
#include "checkpoint/files/safetensors.h"
#include "checkpoint/files/store.h"
#include "checkpoint/tensor_file.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "engine/full_model.h"
#include "experiment/experiment.h"
#include "io/on_progress.h"
#include "telemetry/run_history.h"

namespace sdp {

/// How far a run is.
struct RunProgress {
  int64_t step = 0;                         ///< steps done, skipped ones too
  int64_t skipped_steps = 0;                ///< train.on_nonfinite: skip
  int64_t imported_batch_norm_updates = 0;  ///< torchvision's num_batches_tracked of imported weights
  int64_t metrics_lines = 0;                ///< of metrics.jsonl; rank 0's counts
  DataIdentity training_data = {};          ///< none where nothing was read yet
  DataIdentity test_data = {};
};

/// A manifest without its files, for the processes of the experiment.
Manifest manifest_of(const Experiment& experiment, const RunProgress& progress);

/// What a run folder and each of its checkpoints have as spec.yaml, plan.json and run.json.
struct RunDescription {
  std::string spec_yaml;
  std::string plan_json;
  std::string run_json;
};
RunDescription describe_run(const Experiment& experiment, const RunHistory& history);
/// Writes these files into a folder. Returns what a manifest says of them.
std::vector<ManifestFile> write_description(const RunDescription& description,
                                            const std::filesystem::path& folder);

/// Whether a run may go on with this data: the order of samples depends on how many there are to train on.
/// DataError where that is another number than the checkpoint's; otherwise a warning for each set that is
/// another than it was.
std::vector<std::string> check_data(const Manifest& manifest, const DataIdentity& training_data,
                                    const DataIdentity& test_data);

/// Writes one process's file into the folder of a checkpoint that is being made.
ManifestFile write_process_file(TensorFile& tensors, const std::filesystem::path& folder, int process,
                                int processes, const OnProgress& on_progress);

/// Collective. Throws an Error on every process where something of what a checkpoint would save (master
/// values, moments, BatchNorm statistics) is not finite, naming a tensor and the last checkpoint.
void check_state_is_finite(const std::filesystem::path& run_dir, const Experiment& experiment, Engine& engine,
                           Communicator& comm);

/// For messages of runs that end: "The last checkpoint is of step 10."
std::string text_of_last_checkpoint(const std::filesystem::path& run_dir);

struct SavedCheckpoint {
  int64_t bytes = 0;                ///< of all processes' files
  std::vector<std::string> left{};  ///< rank 0: what could not be removed (CheckpointStore::commit)
};

/// Writes a checkpoint, of finite values only (as above). Collective; returns on all processes when it is
/// complete on disk. `description`: rank 0's is written. Progress is that of this process's own file.
SavedCheckpoint save_checkpoint(const std::filesystem::path& run_dir, const Experiment& experiment,
                                Engine& engine, Communicator& comm, const RunProgress& progress,
                                const RunDescription& description, int threads,
                                const OnProgress& on_progress);

/// A checkpoint's files, mapped. Any process reads any range.
class CheckpointReader {
 public:
  /// Opens the newest checkpoint of the run folder, or `step`. DataError when there is none or it is damaged.
  /// Progress is that of verifying the hashes.
  CheckpointReader(const std::filesystem::path& run_dir, std::optional<int64_t> step, bool verify_hashes,
                   const OnProgress& on_progress = ignore_progress);

  const Manifest& manifest() const { return manifest_; }
  std::filesystem::path manifest_path() const { return folder_ / kManifestName; }
  /// Step and content, to compare over the processes.
  std::string identity() const;
  /// Copies elements [begin, end) into `target` (flat, any type and device). DataError when some are missing
  /// or not finite.
  void read(const StateKey& key, int64_t begin, int64_t end, const at::Tensor& target) const;
  /// A unit's piece of one slot's BatchNorm buffer, flat; undefined when the slot does not hold it. DataError
  /// where it is not finite.
  at::Tensor buffer(const SubnetPlan& plan, int buffer, int unit, Slot slot) const;

 private:
  struct SavedRange {
    int64_t begin = 0;
    int64_t end = 0;
    const TensorView* view = nullptr;
  };
  void require_finite(const at::Tensor& values, const std::string& name) const;
  void index_file(const SafetensorsFile& file, const std::filesystem::path& path);

  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<StateKey, std::vector<SavedRange>> ranges_;
  std::map<std::pair<StateKey, Slot>, const TensorView*> buffers_;  ///< kind "buffer"
};

/// Fills the engine and the slots' buffers. DataError when the checkpoint is of another experiment.
void restore(const CheckpointReader& reader, const Experiment& experiment, Engine& engine);

/// Both sources below throw DataError for a checkpoint of another experiment.

/// The full model of a checkpoint, read parameter by parameter.
class SavedFullModel : public FullModel {
 public:
  SavedFullModel(const SubnetPlan& plan, const CheckpointReader& reader, const ExperimentSpec& spec,
                 at::Device device);

 private:
  at::Tensor read_parameter(int index) override;

  const CheckpointReader& reader_;
  Precision precision_;
  at::Device device_;
};

/// One worker's subnetwork of a checkpoint, as the worker held it, with the statistics of its replica 0.
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
