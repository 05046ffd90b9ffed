#pragma once

// Finds the runs below given folders.

#include <filesystem>
#include <string>
#include <vector>

#include "report/run.h"

namespace sdp {

/// A run folder that cannot be read.
struct UnreadableRun {
  std::filesystem::path dir;
  std::string reason;
};

/// A run folder with the same run as another one, such as a copy.
struct CopiedRun {
  std::filesystem::path dir;
  std::filesystem::path counted;  ///< the folder used for the run
};

struct FoundRuns {
  std::vector<Run> runs;
  std::vector<UnreadableRun> unreadable = {};
  std::vector<CopiedRun> copies = {};
};

/// Each path is a run folder (with a spec.yaml) or a folder that is searched for them; run folders are not
/// searched further. The result is in the order of the paths, sorted by path below each; a folder found twice
/// is listed once. Of several folders with the same run (equal id and changes), the first of those with the
/// most progress is used. A sweep.json in a searched folder gives labels to the runs that it lists.
///
/// Throws UsageError if a path does not exist or contains no run, or if a label names a method other than the
/// run's. Throws DataError if a sweep.json is invalid.
FoundRuns find_runs(const std::vector<std::filesystem::path>& paths);

}  // namespace sdp
