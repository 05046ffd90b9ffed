#pragma once

// Saving a run. Every process writes its shard, keyed by (kind, parameter, hidden range, element range), so
// that a run can resume with another number of processes and with another plan.

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/on_progress.h"
#include "run/manifest.h"

namespace sdp {

class Communicator;
class Engines;
class TensorFile;
struct Experiment;
struct RunHistory;

/// A manifest without its list of files, for the processes of the experiment. `run` has what the run has
/// done: steps, origin, lines of the metrics, data and threads.
Manifest manifest_of(const Experiment& experiment, Manifest run);

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

/// Writes one process's file into the folder of an unfinished checkpoint.
ManifestFile write_process_file(TensorFile& tensors, const std::filesystem::path& folder, int process,
                                int processes, const OnProgress& on_progress);

/// Collective. Throws Error on every process if a checkpoint would save a value that is not finite
/// (parameters, optimizer state, BatchNorm statistics). The message names a tensor.
void check_state_is_finite(const Experiment& experiment, const Engines& engines, Communicator& comm);

/// For error messages that end a run: "The last checkpoint is of step 10; --resume continues from there."
std::string text_of_last_checkpoint(std::optional<int64_t> step);

struct SavedCheckpoint {
  int64_t bytes = 0;  ///< total size of all processes' files
  std::vector<std::string>
      left{};  ///< rank 0 only: messages about files that could not be removed (CheckpointStore::commit)
};

/// Writes a checkpoint; throws if a value is not finite, as above. Collective; returns on all processes once
/// the checkpoint is complete on disk. `run`: as in manifest_of(). Of rank 0 alone the number of lines,
/// `best_steps`, whose checkpoints are kept, and `description` are used. `on_progress` reports this process's
/// own file.
SavedCheckpoint save_checkpoint(const std::filesystem::path& run_dir, const Experiment& experiment,
                                const Engines& engines, Communicator& comm, const Manifest& run,
                                const std::set<int64_t>& best_steps, const RunDescription& description,
                                const OnProgress& on_progress);

}  // namespace sdp
