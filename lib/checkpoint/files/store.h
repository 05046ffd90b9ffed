#pragma once

// The checkpoints of a run folder:
//
//   checkpoints/step-00000120/            a complete checkpoint: the processes' files, spec.yaml, plan.json
//                                         and run.json as they were, and manifest.json
//   checkpoints/.step-00000130.partial/   one that is being written or removed; never read
//   latest                                name of the folder to resume from
//
// Whenever the machine stops, each step-* folder with a manifest is whole: it gets its name after everything
// in it is on the disk, and loses its name before anything in it is removed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/files/manifest.h"
#include "io/on_progress.h"

namespace sdp {

/// Files of a checkpoint besides the processes': what it holds, and what run it is of.
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kSavedSpec = "spec.yaml";
inline constexpr const char* kSavedPlan = "plan.json";
inline constexpr const char* kSavedHistory = "run.json";  ///< not in checkpoints of older programs

/// Which checkpoint a run goes on from (--resume).
enum class Resume {
  kNo,          ///< none: the run is new
  kLatest,      ///< the one to resume from; that there is none, or that it is damaged, is an error
  kLatestGood,  ///< the newest that verifies; that there is none is an error
  kIfAny,       ///< as kLatest, but a run without a checkpoint starts anew
};

/// All functions throw DataError where the file system fails. One process (rank 0) calls begin() and
/// commit().
class CheckpointStore {
 public:
  explicit CheckpointStore(const std::filesystem::path& run_dir);

  /// Makes the folder that all processes then write their files into, anew where one was left over.
  std::filesystem::path begin(int64_t step) const;
  /// The folder begin() makes.
  std::filesystem::path partial_path(int64_t step) const;

  /// Turns the folder of begin() into a checkpoint, after all processes have finished their files; then keeps
  /// this one and the `keep_last` - 1 before it, and removes older ones and left-over partial folders. A
  /// checkpoint of the same step is replaced. Returns what could not be removed, a sentence each: NFS keeps
  /// files that a process still reads. The next commit() tries again. Throws DataError if a file of the
  /// manifest is missing or has another size.
  std::vector<std::string> commit(int64_t step, const Manifest& manifest, int64_t keep_last) const;

  /// The step to resume from: the one `latest` names if that folder has a manifest (damage to it is then left
  /// for read() to report), otherwise the newest folder whose files are there in full.
  std::optional<int64_t> latest_step() const;
  /// The newest step whose checkpoint verifies: the one `latest` names, those before it, then all others.
  /// Calls `on_passed_over` with what is wrong with each that does not. None where there is no checkpoint at
  /// all; DataError where there are, and none verifies.
  std::optional<int64_t> latest_good_step(bool verify_hashes,
                                          const std::function<void(const std::string&)>& on_passed_over,
                                          const OnProgress& on_progress = ignore_progress) const;
  /// Steps of all folders with a manifest, ascending.
  std::vector<int64_t> steps() const;

  std::filesystem::path folder(int64_t step) const;
  /// Checks the manifest, names and sizes of the files, the hashes of those that are not the processes', and
  /// on demand those of the processes' files (which reads them all). The DataError says which file is wrong,
  /// what was expected and which other checkpoints there are. Progress is that of reading the files, in
  /// bytes.
  Manifest read(int64_t step, bool verify_hashes, const OnProgress& on_progress = ignore_progress) const;
  /// Path of one file, its size and hash verified.
  std::filesystem::path verified_file(int64_t step, const std::string& name) const;
  /// Whether the manifest lists it.
  bool has_file(int64_t step, const std::string& name) const;

 private:
  Manifest read_manifest(int64_t step) const;
  Manifest verified(int64_t step, bool verify_hashes, const OnProgress& on_progress) const;
  template <class Read>
  auto with_advice(int64_t step, Read read) const;
  std::string advice(int64_t damaged_step) const;
  void move_out_of_the_way(int64_t step) const;
  std::filesystem::path unused_name(int64_t step) const;
  std::vector<std::string> remove_older(int64_t step, int64_t keep_last) const;

  std::filesystem::path checkpoints_;
  std::filesystem::path latest_;
};

}  // namespace sdp
