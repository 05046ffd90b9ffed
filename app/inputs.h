#pragma once

// What several commands share: the spec of a run folder, a machine to forecast for, the folder of --out, and
// warnings about a spec.

#include <cstdio>
#include <string>
#include <vector>

#include "commands.h"
#include "experiment/load.h"

namespace sdp {

/// A checkpoint of a run, with overrides of the run's spec.
struct ChosenCheckpoint {
  std::filesystem::path run_dir;
  std::vector<std::string> overrides;
  int64_t step;
};

/// The checkpoint that the arguments ask for: the newest one, without --checkpoint. The step of `best` is
/// printed on standard error. Throws UsageError if there is none with this name or the folder is not a run
/// folder; DataError if it has no checkpoint.
ChosenCheckpoint choose_checkpoint(const RunArguments& run);

/// The spec of that checkpoint with the overrides, which may only change how it is evaluated. Throws
/// UsageError for other overrides; DataError if the checkpoint is damaged.
ExperimentSpec spec_of(const ChosenCheckpoint& checkpoint);

/// The spec of a run folder, as the run wrote it, with overrides for a part that continues the run. Only the
/// overrides are warned about. Throws UsageError if the folder has no spec.yaml.
LoadedSpec load_spec_of_run(const std::filesystem::path& run_dir, const std::vector<std::string>& overrides,
                            NamedFiles named_files);

/// Makes the folder of --out, unless it exists. Throws UsageError if that fails.
void make_folder(const std::filesystem::path& folder);

/// Prints the warnings about a spec (LoadedSpec::warnings).
inline void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
}

}  // namespace sdp
