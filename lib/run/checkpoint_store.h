#pragma once

// The checkpoints of a run folder:
//
//   checkpoints/step-00000120/            a complete checkpoint: the processes' files, spec.yaml, plan.json
//                                         and run.json as they were, and manifest.json
//   checkpoints/.step-00000130.partial/   one that is being written or removed; never read
//   latest                                name of the folder to resume from
//
// Whenever the machine stops, each step-* folder with a manifest is complete: it gets its name after all of
// its contents are on disk, and loses its name before anything in it is removed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/on_progress.h"
#include "run/manifest.h"

namespace sdp {

/// Files of a checkpoint besides those of the processes: its contents and its run.
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kSavedSpec = "spec.yaml";
inline constexpr const char* kSavedPlan = "plan.json";
inline constexpr const char* kSavedHistory = "run.json";

/// All functions throw DataError if the file system fails. Only one process (rank 0) calls begin() and
/// commit().
class CheckpointStore {
 public:
  explicit CheckpointStore(const std::filesystem::path& run_dir);

  /// Creates the folder that all processes then write their files into; removes an earlier one first.
  std::filesystem::path begin(int64_t step) const;
  /// The folder created by begin().
  std::filesystem::path partial_path(int64_t step) const;

  /// Turns the folder of begin() into a checkpoint, after all processes have finished their files. Then keeps
  /// this checkpoint, the `keep_last` - 1 before it and those of the steps `best`, and removes older ones and
  /// left-over partial folders.
  /// Replaces a checkpoint of the same step. Returns one sentence per file or folder that could not be
  /// removed (NFS keeps files that a process still reads); the next commit() tries again. Throws DataError if
  /// a file of the manifest is missing or has the wrong size.
  std::vector<std::string> commit(int64_t step, const Manifest& manifest, int64_t keep_last,
                                  const std::set<int64_t>& best = {}) const;

  /// The step to resume from: the one named by `latest` if that folder has a manifest (read() then reports
  /// any damage), otherwise the newest folder with all files present.
  std::optional<int64_t> latest_step() const;
  /// The newest step whose checkpoint verifies; tries the one named by `latest`, those before it, then all
  /// others. Calls `on_passed_over` with the fault of each one that does not verify. std::nullopt if there is
  /// no checkpoint at all; throws DataError if there are checkpoints but none verifies.
  std::optional<int64_t> latest_good_step(bool verify_hashes,
                                          const std::function<void(const std::string&)>& on_passed_over,
                                          const OnProgress& on_progress = ignore_progress) const;
  /// Steps of all folders with a manifest, ascending.
  std::vector<int64_t> steps() const;

  std::filesystem::path folder(int64_t step) const;
  /// Checks the manifest, the names and sizes of the files, and the hashes of files other than the
  /// processes'; on request also the hashes of the processes' files (which reads them completely). The
  /// DataError says which file is wrong, what was expected and which other checkpoints exist. Progress is
  /// reported in bytes read.
  Manifest read(int64_t step, bool verify_hashes, const OnProgress& on_progress = ignore_progress) const;
  /// Path of one file, after verifying its size and hash.
  std::filesystem::path verified_file(int64_t step, const std::string& name) const;

 private:
  Manifest read_manifest(int64_t step) const;
  Manifest verified(int64_t step, bool verify_hashes, const OnProgress& on_progress) const;
  template <class Read>
  auto with_advice(int64_t step, Read read) const;
  std::string advice(int64_t damaged_step) const;
  void move_out_of_the_way(int64_t step) const;
  std::filesystem::path unused_name(int64_t step) const;
  std::vector<std::string> remove_older(int64_t step, int64_t keep_last, const std::set<int64_t>& best) const;

  std::filesystem::path checkpoints_;
  std::filesystem::path latest_;
};

}  // namespace sdp
