#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "run/run_lock.h"

namespace sdp {

/// The folder of a run, and the names of its files. For checkpoints see run/checkpoint_store.h.
struct RunFolder {
  std::filesystem::path dir;

  std::filesystem::path spec() const { return dir / "spec.yaml"; }
  std::filesystem::path plan() const { return dir / "plan.json"; }
  /// Identity and history of the run (run_history.h).
  std::filesystem::path history() const { return dir / "run.json"; }
  std::filesystem::path metrics() const { return dir / "metrics.jsonl"; }
  std::filesystem::path trace() const { return dir / "trace.jsonl"; }
  std::filesystem::path profile(int rank) const {
    return dir / ("profile-rank-" + std::to_string(rank) + ".json");
  }
  std::filesystem::path log() const { return dir / "log.txt"; }
  /// Output of a run that a sweep started without a terminal.
  std::filesystem::path output() const { return dir / "output.txt"; }
  std::filesystem::path summary() const { return dir / "summary.json"; }
  /// Owner of the folder (run_lock.h).
  std::filesystem::path lock() const { return dir / "run.lock"; }
};

/// Throws UsageError if a file that a run reads or writes in its folder is not a regular file or folder: a
/// pipe or a device may block a reader forever. With `to_write`, symbolic links are refused too, as they may
/// lead to another run's files. The run folder itself may be a link, but with `to_write` not to another
/// folder beside it.
void check_run_files(const RunFolder& folder, bool to_write);

/// On destruction, removes the run folder and its parents if this object found them missing and they are
/// empty.
class NewFolders {
 public:
  explicit NewFolders(const RunFolder& folder);
  ~NewFolders();
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

 private:
  std::vector<std::filesystem::path> missing_;  ///< innermost first
};

/// On destruction, removes what was added to a run folder since construction, unless it is to be kept. Only
/// for the process that holds the folder's lock.
class NewFiles {
 public:
  explicit NewFiles(const RunFolder& folder);
  ~NewFiles();
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;

  void keep() { keeps_ = true; }

 private:
  std::filesystem::path dir_;
  std::vector<std::string> names_before_;
  bool keeps_ = false;
};

/// Which checkpoint a run resumes from (--resume).
enum class Resume {
  kNo,          ///< none: a new run
  kLatest,      ///< the one named by `latest`; an error if there is none or it is damaged
  kLatestGood,  ///< the newest that verifies; an error if there is none
  kIfAny,       ///< as kLatest, but a run without a checkpoint starts from the beginning
};

/// A run folder that this process may write to.
struct LockedRunFolder {
  RunFolder folder;
  std::unique_ptr<RunLock> lock;
};

/// How a process locks the folder: RunLock::acquire or one of the similar functions.
using LockRunFolder = std::function<std::unique_ptr<RunLock>(const std::filesystem::path& folder)>;

/// Creates output_dir/name and locks it before writing anything else there. Without `resume`, a folder with
/// metrics or complete checkpoints is refused; with it, an existing folder is used. Throws UsageError if
/// another run holds the lock, the folder exists, the name is not a valid folder name, or the folder cannot
/// be created, and throws the errors of check_run_files. Call it in one process; the others use
/// RunFolder{dir}.
LockedRunFolder create_run_folder(const std::filesystem::path& output_dir, const std::string& name,
                                  bool resume, const LockRunFolder& lock);

}  // namespace sdp
