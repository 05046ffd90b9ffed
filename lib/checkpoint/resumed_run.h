#pragma once

// The checkpoint that a run resumes from, examined before anything is started or written.

#include <filesystem>

#include "checkpoint/files/store.h"
#include "experiment/spec/experiment_spec.h"
#include "telemetry/run_history.h"

namespace sdp {

/// Whether the run resumes from a checkpoint of its folder, which need not exist. Throws UsageError if
/// `resume` asks for a checkpoint and there is none, and DataError if there are some but none is complete.
bool finds_checkpoint(const std::filesystem::path& run_dir, Resume resume);

/// A checkpoint's information about its run.
struct SavedRun {
  ExperimentSpec spec;
  RunHistory history;  ///< a new history for a checkpoint of an older program, which has none
};
SavedRun read_saved_run(const CheckpointStore& store, int64_t step);

}  // namespace sdp
