#pragma once

// run.json: the identity of a run, the source of its initial weights, and the changes made during the run.
// Every checkpoint contains the history up to its step; a run that resumes from it continues that history.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiment/print.h"
#include "experiment/resume.h"
#include "run/manifest.h"
#include "spec/field.h"

namespace sdp {

/// Source of a run's initial weights: a file, or a folder with files.
struct ImportSource {
  std::string path = {};
  int64_t bytes = 0;          ///< of all files
  std::string xxh3_128 = {};  ///< hash of the file; for several files, the hash of their hashes, one per line

  bool operator==(const ImportSource&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("path", &ImportSource::path);
    field("bytes", &ImportSource::bytes);
    field("xxh3_128", &ImportSource::xxh3_128);
  }
};

/// A change of a key of the spec, or of `training_data` or `test_data`, whose values are hashes.
struct RunChange {
  int64_t step = 0;  ///< number of steps done with the old value
  std::string key;
  std::string was;
  std::string now;

  bool operator==(const RunChange&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("step", &RunChange::step);
    field("key", &RunChange::key);
    field("was", &RunChange::was);
    field("now", &RunChange::now);
  }
};

struct RunHistory {
  std::string id;     ///< drawn at random when the run began; copies of its folder have the same id
  std::string began;  ///< UTC, "2026-11-22T18:30:00Z"
  std::optional<ImportSource> imported = {};  ///< unset: trained from scratch
  DataIdentity training_data = {};  ///< of the latest part of the run; empty if no data was read yet
  DataIdentity test_data = {};
  std::vector<RunChange> changes = {};  ///< in order of steps

  bool operator==(const RunHistory&) const = default;
  int64_t format() const { return kRunFormat; }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("format", &RunHistory::format);
    field("id", &RunHistory::id);
    field("began", &RunHistory::began);
    field("imported", &RunHistory::imported, kOrNull);
    field("training_data", &RunHistory::training_data);
    field("test_data", &RunHistory::test_data);
    field("changes", &RunHistory::changes);
  }
};

/// The history of a run that begins now.
RunHistory new_history();

/// Records that a part of the run begins after `step` steps with these data and these changes of the spec.
/// Changes before the first step are not recorded.
void continue_history(RunHistory& history, int64_t step, const std::vector<SpecChange>& changes,
                      const DataIdentity& training_data, const DataIdentity& test_data);

/// The text of run.json.
std::string history_text(const RunHistory& history);

/// Throws DataError with the file's name if it cannot be read or lacks a key.
RunHistory read_history(const std::filesystem::path& path);

}  // namespace sdp
