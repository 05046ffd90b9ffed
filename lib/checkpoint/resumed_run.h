#pragma once

// The checkpoint that a run goes on from, before anything is started or written.

#include <filesystem>

#include "checkpoint/files/store.h"
#include "experiment/spec/experiment_spec.h"
#include "telemetry/run_history.h"

namespace sdp {

/// Whether the run goes on from a checkpoint of its folder, which need not exist. Throws UsageError where
/// `resume` asks for one and there is none, and DataError where there are some and none is complete.
bool finds_checkpoint(const std::filesystem::path& run_dir, Resume resume);

/// What a checkpoint says of its run.
struct SavedRun {
  ExperimentSpec spec;
  RunHistory history;  ///< a new one of a checkpoint of an older program, which has none
};
SavedRun read_saved_run(const CheckpointStore& store, int64_t step);

}  // namespace sdp
