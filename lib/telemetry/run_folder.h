#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "telemetry/run_lock.h"

namespace sdp {

/// The folder of a run and the names in it. Checkpoints are checkpoint/files/store.h's.
struct RunFolder {
  std::filesystem::path dir;

  std::filesystem::path spec() const { return dir / "spec.yaml"; }
  std::filesystem::path plan() const { return dir / "plan.json"; }
  /// Which run it is, and what changed on the way (run_history.h).
  std::filesystem::path history() const { return dir / "run.json"; }
  std::filesystem::path metrics() const { return dir / "metrics.jsonl"; }
  std::filesystem::path trace() const { return dir / "trace.jsonl"; }
  std::filesystem::path profile(int rank) const {
    return dir / ("profile-rank-" + std::to_string(rank) + ".json");
  }
  std::filesystem::path log() const { return dir / "log.txt"; }
  /// What a run printed that a sweep started without a terminal.
  std::filesystem::path output() const { return dir / "output.txt"; }
  std::filesystem::path summary() const { return dir / "summary.json"; }
  /// Who writes the folder (run_lock.h).
  std::filesystem::path lock() const { return dir / "run.lock"; }
};

/// Throws UsageError where something that a run reads or writes in its folder is not what it has to be: a
/// pipe or a device, which may keep a reader waiting for ever; `to_write`: also a symbolic link, which may
/// lead to what is not this run's. The run folder itself may be a link, with `to_write` not to another one in
/// the same folder.
void check_run_files(const RunFolder& folder, bool to_write);

/// Removes, in the end, the run folder and those above it that were not there in the beginning and are empty.
class NewFolders {
 public:
  explicit NewFolders(const RunFolder& folder);
  ~NewFolders();
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

 private:
  std::vector<std::filesystem::path> missing_;  ///< innermost first
};

/// Removes, in the end, what has come into a run folder since the beginning, unless it is kept. For whoever
/// has locked the folder.
class NewFiles {
 public:
  explicit NewFiles(const RunFolder& folder);
  ~NewFiles();
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;

  void keep() { keeps_ = true; }

 private:
  std::filesystem::path dir_;
  std::set<std::filesystem::path> names_before_;
  bool keeps_ = false;
};

/// A run folder that this process may write.
struct LockedRunFolder {
  RunFolder folder;
  std::unique_ptr<RunLock> lock;
};

/// How a process locks the folder: RunLock::acquire or another of its functions.
using LockRunFolder = std::function<std::unique_ptr<RunLock>(const std::filesystem::path& folder)>;

/// Makes output_dir/name and locks it before anything else is written there. One that has metrics or
/// checkpoints, other than partial ones, is refused without `resume`; with it, it is taken as it is, or made.
/// Throws UsageError: another run is at work in it, it exists, the name is not that of a folder, or it cannot
/// be made, and what check_run_files throws. For one process; the others use RunFolder{dir}.
LockedRunFolder create_run_folder(const std::filesystem::path& output_dir, const std::string& name,
                                  bool resume, const LockRunFolder& lock);

}  // namespace sdp
