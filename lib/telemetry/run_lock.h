#pragma once

// One writer per run folder, on local and network file systems.
//
// The lock is the file run.lock. Its text names the owner (run_owner.h), and the owner renews a counter in
// it, the heartbeat. flock() and fcntl() locks are not used: many clusters mount their file systems without
// them.
//
// Whoever wants to replace or remove a lock with the id X must first create the file run.lock.X, which only
// one process can do (O_EXCL, atomic on NFS too). It then looks whether run.lock still has that id, and only
// then renames its file over run.lock, or removes both. Ids are never used again, so that a process that
// decided long ago, about another lock, takes nothing away. One that ends between the two leaves a chain,
// run.lock with the id X and run.lock.X with the id Y, whose last file names the owner and is replaced in the
// same way.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "telemetry/run_owner.h"

namespace sdp {

struct LockTimes {
  std::chrono::milliseconds heartbeat{5000};
  /// How long an owner whose process cannot be seen may be without a heartbeat before it counts as gone. By
  /// this process's clock from its first look on: clocks of other hosts are not compared.
  std::chrono::milliseconds silence{60000};
  std::chrono::milliseconds poll{200};
};

/// Told once when a lock is waited for or taken over.
using OnLockNotice = std::function<void(const std::string& message)>;

/// The lock on a run folder for as long as it exists.
class RunLock {
 public:
  /// Locks the folder, which exists, and renews the heartbeat in a thread that blocks all signals.
  ///
  /// A lock that was left behind is taken over: at once where its process is gone or its SLURM job was
  /// started again, after `silence` where its process cannot be seen from here. Throws UsageError that names
  /// the owner where there is one at work, DataError where the file system fails.
  static std::unique_ptr<RunLock> acquire(const std::filesystem::path& folder, const OnLockNotice& notice,
                                          const LockTimes& times = {}, const RunOwner& self = this_process());
  /// The same for a process that only starts others: one of them calls inherit(), becomes the owner and
  /// renews the heartbeat. This object still removes the lock.
  static std::unique_ptr<RunLock> acquire_for_child(const std::filesystem::path& folder,
                                                    const OnLockNotice& notice);
  /// Becomes the owner of the lock that the parent process has acquired. Throws UsageError where it has not.
  static std::unique_ptr<RunLock> inherit(const std::filesystem::path& folder, const LockTimes& times = {});

  /// Removes the lock, if it is still this process's and was not inherited.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws UsageError where the lock is no longer this process's, as after it was stopped for long
  /// (SIGSTOP). Reads the file. To be called before something is written that another run must not lose.
  void check() const;

  const RunOwner& owner() const { return owner_; }

 private:
  RunLock(std::filesystem::path folder, RunOwner owner, bool removes);
  void start_heartbeat(std::chrono::milliseconds interval);
  void beat(std::chrono::milliseconds interval);
  void remove() const;

  const std::filesystem::path folder_;
  const RunOwner owner_;
  const bool removes_;
  int descriptor_ = -1;  ///< of this lock's file, whatever its name has become
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread heartbeat_;
};

/// Looks again and again at the lock of a folder that another process may hold, and takes nothing.
class LockWatch {
 public:
  explicit LockWatch(std::filesystem::path folder, const LockTimes& times = {},
                     RunOwner self = this_process());

  enum class State {
    kFree,    ///< no lock, or one whose owner is gone
    kHeld,    ///< its process is seen, or its heartbeat was
    kSilent,  ///< its process cannot be seen from here, and there was no heartbeat since the first look
  };
  /// Returns at once. Throws DataError where the file system fails.
  State look();
  /// The same of a lock's file that the caller has read: its owner, if it names one, and its text.
  State judge(const std::optional<RunOwner>& owner, const std::string& text);
  /// Who held the lock at the last look, as far as its file names somebody.
  const std::optional<RunOwner>& owner() const { return owner_; }

 private:
  std::filesystem::path folder_;
  LockTimes times_;
  RunOwner self_;
  std::optional<RunOwner> owner_;
  std::optional<std::string> text_;  ///< of the lock's file at the last look
  std::chrono::steady_clock::time_point changed_at_;
  bool is_heard_ = false;  ///< the text of this lock has changed since it was first seen
};

/// The owner that the lock of a folder names, as far as can be read; nothing where there is none.
std::optional<RunOwner> lock_owner(const std::filesystem::path& folder);

}  // namespace sdp
