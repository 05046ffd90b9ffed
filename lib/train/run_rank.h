#pragma once

// A run as each of its processes executes it.

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "experiment/experiment_spec.h"
#include "process/signals.h"
#include "run/run_folder.h"

namespace sdp {

struct RankOptions {
  Resume resume = Resume::kNo;
  std::vector<std::string> warnings = {};  ///< printed by rank 0
  pid_t parent = 0;                        ///< the process that started this one
};

/// Trains as one process of a run: meets the other processes, locks the run folder, trains, evaluates and
/// saves. `spec` is checked and resolved. Returns the process's exit code; throws the errors of a spec or a
/// run folder that are found before training starts.
int run_rank(const ExperimentSpec& spec, const Ranks& ranks, StopSignals& signals,
             const RankOptions& options = {});

/// The folder output.dir/name.
RunFolder run_folder_of(const ExperimentSpec& spec);

/// Creates the folder of the run and locks it. Waits are announced on standard output.
LockedRunFolder create_and_lock(const ExperimentSpec& spec, bool resume);

/// The step of the checkpoint of a run to be resumed; none if it starts from the beginning. With kLatestGood
/// the trainer verifies the processes' files.
std::optional<int64_t> saved_step(const RunFolder& folder, Resume resume);

/// The plan.json whose owner sets a resumed run keeps; none if they are assigned.
std::optional<std::filesystem::path> owners_of_run(const RunFolder& folder, Resume resume,
                                                   const ExperimentSpec& spec);

/// Prints a line on standard output.
void print_notice(const std::string& message);

}  // namespace sdp
