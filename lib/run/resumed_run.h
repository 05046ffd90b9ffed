#pragma once

// The checkpoint that a run resumes from, examined before anything is started or written.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "cost/make_experiment.h"
#include "run/run_folder.h"
#include "run/run_history.h"

namespace sdp {

class CheckpointStore;
struct Manifest;

/// Whether the run resumes from a checkpoint of its folder, which need not exist. Throws UsageError if
/// `resume` asks for a checkpoint and there is none, and DataError if there are some but none is complete.
bool finds_checkpoint(const std::filesystem::path& run_dir, Resume resume);

/// A checkpoint's information about its run.
struct SavedRun {
  ExperimentSpec spec;
  RunHistory history;
};
SavedRun read_saved_run(const CheckpointStore& store, int64_t step);

/// What made a checkpoint, whose spec is `saved`, in one process. A model among `recorded` is not recorded
/// again.
Experiment read_saved_experiment(const CheckpointStore& store, int64_t step, const ExperimentSpec& saved,
                                 std::vector<RecordedModel> recorded = {});

/// The plan.json of a checkpoint, if a run that resumes from it with this spec keeps its owner sets, because
/// the network is divided in the same way. Otherwise owners are assigned anew.
std::optional<std::filesystem::path> owners_to_keep(const CheckpointStore& store, int64_t step,
                                                    const ExperimentSpec& now);

/// The origin of the steps of a run that resumes from a checkpoint: the checkpoint's, or the checkpoint
/// itself if the run's steps now have other samples, micro-batches or another share of the budget.
/// `dataset_size`: number of training samples now. Tokens of a sequence length that has changed are counted
/// in samples of the new length, rounded up to whole ones and within the epoch.
StepOrigin origin_of_resumed(const Manifest& manifest, const Experiment& saved, const Experiment& now,
                             int64_t dataset_size);

}  // namespace sdp
