#pragma once

// run.json: which run a folder is of, where its weights came from, and what changed while it went on. A
// checkpoint has the one that led to it, so that a run which goes on from there continues that history.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/files/manifest.h"
#include "experiment/spec/resume.h"

namespace sdp {

/// What a run's first weights are of: a file, or a folder of some.
struct ImportSource {
  std::string path = {};
  int64_t bytes = 0;          ///< of all files
  std::string xxh3_128 = {};  ///< of the file; of several files that of their hashes, a line each

  bool operator==(const ImportSource&) const = default;
};

/// Of a key of the spec, or of `training_data` or `test_data`, whose values are hashes.
struct RunChange {
  int64_t step = 0;  ///< steps done with the value before
  std::string key;
  std::string was;
  std::string now;

  bool operator==(const RunChange&) const = default;
};

struct RunHistory {
  std::string id;     ///< drawn at random when the run began; a copy of its folder has the same
  std::string began;  ///< UTC, "2026-11-22T18:30:00Z"
  std::optional<ImportSource> imported = {};  ///< unset: from scratch
  ManifestData training_data = {};            ///< of the newest part; of none where nothing was read yet
  ManifestData test_data = {};
  std::vector<RunChange> changes = {};  ///< in order of steps

  bool operator==(const RunHistory&) const = default;
};

/// Of a run that begins now.
RunHistory new_history();

/// A part of the run begins after `step` steps, with these data and with these changes of its spec. What
/// changes before the first step is no change of the run.
void continue_history(RunHistory& history, int64_t step, const std::vector<SpecChange>& changes,
                      const ManifestData& training_data, const ManifestData& test_data);

/// The text of run.json.
std::string history_text(const RunHistory& history);

/// Nothing where there is no such file, as in the folder of a run of an older program. Throws DataError with
/// the file's name for one that cannot be read, or that lacks a key.
std::optional<RunHistory> read_history(const std::filesystem::path& path);

}  // namespace sdp
