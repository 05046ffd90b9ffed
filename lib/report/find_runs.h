#pragma once

// The runs below some folders.

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

/// A run folder that holds the same run as another one, as copies do.
struct CopiedRun {
  std::filesystem::path dir;
  std::filesystem::path counted;  ///< the folder that stands for the run
};

struct FoundRuns {
  std::vector<Run> runs;
  std::vector<UnreadableRun> unreadable = {};
  std::vector<CopiedRun> copies = {};
};

/// Each path is a run folder (one with a spec.yaml) or a folder below which they are searched; nothing is
/// searched below a run folder. In the order of the paths, below each sorted by path; a folder that is found
/// twice is there once. Of folders with one run (its id and its changes are the same) the first one that is
/// furthest counts. A sweep.json in a searched folder gives the runs that it lists their labels.
///
/// Throws UsageError where a path does not exist or holds no run, or a label names a method that the run is
/// not, and DataError where a sweep.json is broken.
FoundRuns find_runs(const std::vector<std::filesystem::path>& paths);

}  // namespace sdp
