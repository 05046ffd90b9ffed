#pragma once

// One writer per run folder, on local and network file systems.
//
// The lock is the file run.lock. It names the owner (run_owner.h) and holds a counter, the heartbeat, which
// the owner increments regularly. flock() and fcntl() locks are not used, because many clusters mount their
// file systems without them.
//
// To replace or remove a lock with the id X, a process must first create the file run.lock.X, which only one
// process can do (O_EXCL is atomic on NFS too). It then checks that run.lock still has that id, and renames
// its file over run.lock, or removes both files. Ids are never reused, so a process that decided long ago to
// replace another lock cannot remove a newer one. A process that ends between the two operations leaves a
// chain: run.lock with the id X and run.lock.X with the id Y. The last file of the chain names the owner and
// is replaced in the same way.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "process/condition_variable.h"
#include "telemetry/run_owner.h"

namespace sdp {

struct LockTimes {
  std::chrono::milliseconds heartbeat{5000};
  /// How long an owner whose process cannot be seen may have no heartbeat before it counts as gone. Measured
  /// with the observer's clock from its first look, as clocks of different hosts are not compared.
  std::chrono::milliseconds silence{60000};
  std::chrono::milliseconds poll{200};
};

/// Called once when the lock is waited for or taken over.
using OnLockNotice = std::function<void(const std::string& message)>;

/// Holds the lock of a run folder during its lifetime.
class RunLock {
 public:
  /// Locks the existing folder, and starts a thread that renews the heartbeat and blocks all signals.
  ///
  /// Takes over a lock that was left behind: at once if its process is gone or its SLURM job was restarted;
  /// after `silence` without a heartbeat if its process cannot be seen from this host. Throws UsageError with
  /// the owner if another run holds the lock, and DataError if the file system fails.
  static std::unique_ptr<RunLock> acquire(const std::filesystem::path& folder, const OnLockNotice& notice,
                                          const LockTimes& times = {}, const RunOwner& self = this_process());
  /// For a process that only starts others: one of them calls inherit(), becomes the owner and renews the
  /// heartbeat. This object still removes the lock.
  static std::unique_ptr<RunLock> acquire_for_child(const std::filesystem::path& folder,
                                                    const OnLockNotice& notice);
  /// Becomes the owner of the lock that the parent process acquired. Throws UsageError if the parent does not
  /// hold it.
  static std::unique_ptr<RunLock> inherit(const std::filesystem::path& folder, const LockTimes& times = {});

  /// Removes the lock if this process still owns it and did not inherit it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws UsageError if this process no longer owns the lock, for example after a long suspension
  /// (SIGSTOP). Reads the file. Call it before writing anything that another run must not lose.
  void check() const;

  /// Whether the heartbeat could not be written for half of the time after which another host takes the lock
  /// over: this process must stop. A process that was suspended meanwhile is not late.
  bool is_late() const { return std::chrono::steady_clock::now() - silence_ / 2 > trying_since_.load(); }

  const RunOwner& owner() const { return owner_; }

 private:
  RunLock(std::filesystem::path folder, RunOwner owner, bool removes);
  void start_heartbeat(const LockTimes& times);
  void beat(std::chrono::milliseconds interval);
  void remove() const;

  const std::filesystem::path folder_;
  const RunOwner owner_;
  const bool removes_;
  int descriptor_ = -1;  ///< of this lock's file, whatever its current name
  std::chrono::milliseconds silence_ = {};
  /// When the heartbeat was first tried that is not yet written; the end of time: there is none.
  std::atomic<std::chrono::steady_clock::time_point> trying_since_ =
      std::chrono::steady_clock::time_point::max();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread heartbeat_;
};

/// Observes the lock of a folder that another process may hold, without taking it.
class LockWatch {
 public:
  explicit LockWatch(std::filesystem::path folder, const LockTimes& times = {},
                     RunOwner self = this_process());

  enum class State {
    kFree,    ///< no lock, or its owner is gone
    kHeld,    ///< the owner's process is running, or its heartbeat has changed
    kSilent,  ///< the owner's process cannot be seen, and its heartbeat has not changed since the first look
  };
  /// Does not wait. Throws DataError if the file system fails.
  State look();
  /// The same for a lock file that the caller has read: its owner, if it names one, and its text.
  State judge(const std::optional<RunOwner>& owner, const std::string& text);
  /// The owner at the last look, if the file names one.
  const std::optional<RunOwner>& owner() const { return owner_; }

 private:
  std::filesystem::path folder_;
  LockTimes times_;
  RunOwner self_;
  std::optional<RunOwner> owner_;
  std::optional<std::string> text_;  ///< content of the lock file at the last look
  std::chrono::steady_clock::time_point changed_at_;
  bool is_heard_ = false;  ///< this lock's text has changed since it was first read
};

/// The owner that the folder's lock names; std::nullopt if there is no lock or it cannot be read.
std::optional<RunOwner> lock_owner(const std::filesystem::path& folder);

}  // namespace sdp
