#pragma once

// One writer per run folder, on local and network file systems.
//
// The lock is the file run.lock, which names its owner and holds a counter, the heartbeat, which the owner
// increments. A process that takes over a lock with the id X creates run.lock.1.X, the next one run.lock.2.Y,
// where Y is the id of the first, and so on: the last file of this chain is the owner's. Files are created
// with O_EXCL, which is atomic on NFS too; flock() and fcntl() locks are not used, because many clusters
// mount their file systems without them. Ids are random and files are never renamed, so a name never comes
// back. To release the lock, the owner takes it over from itself, then removes all files, run.lock first.
//
// - Of several processes that take over or release a lock at the same time, one creates the next file.
// - A process that ends at any point leaves a chain whose last owner is gone: it is taken over likewise.
// - A slow process that creates its file after the chain was removed finds that run.lock does not lead there,
//   removes the file and begins anew.
// - An owner that was taken for gone finds another's file after its own (check()), and removes nothing.
// - An owner that is suspended within the release, for longer than `silence`, removes the lock of a process
//   that has taken it over meanwhile; that one notices (check()).

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/file.h"

namespace sdp {

/// A process that has locked a run folder.
struct RunOwner {
  std::string id;       ///< drawn at random for each lock
  std::string host;     ///< for messages only
  std::string machine;  ///< process/identity.h, as the next two
  int64_t pid = 0;
  int64_t process_start = 0;
  std::string job;           ///< SLURM_JOB_ID; empty outside of SLURM
  int64_t job_restarts = 0;  ///< SLURM_RESTART_COUNT
  std::string since;         ///< UTC, "2026-11-22T18:30:00Z"

  bool operator==(const RunOwner&) const = default;
};

/// This process, with a new id.
RunOwner this_process();

/// "process 77 on host node1 (SLURM job 5, restart 1), since 2026-11-22T18:30:00Z".
std::string describe(const RunOwner& owner);

/// The text of a lock file: a line of JSON, whose length does not depend on the heartbeat.
std::string lock_text(const RunOwner& owner, int64_t heartbeat);
/// std::nullopt if the text is not that of a lock file, for example while the file is being written.
std::optional<RunOwner> parse_lock_text(const std::string& text);

/// The lock of a folder.
struct LockChain {
  std::vector<std::filesystem::path> files;  ///< from run.lock to the owner's; none: the folder is not locked
  std::string text = {};                     ///< of the last file
  std::optional<RunOwner> owner = {};        ///< that it names; it may be unfinished or damaged
  std::filesystem::path next;                ///< the file that takes over this lock

  bool is_held_by(const RunOwner& process) const { return owner && owner->id == process.id; }
};

/// Throws DataError if the file system fails.
LockChain read_lock(const std::filesystem::path& folder);

struct LockTimes {
  std::chrono::milliseconds heartbeat{5000};
  /// How long an owner whose process cannot be seen may have no heartbeat before it counts as gone. Measured
  /// with the observer's clock from its first look, as clocks of different hosts are not compared.
  std::chrono::milliseconds silence{60000};
};

/// Observes the lock of a folder that another process may hold, without taking it.
class LockWatch {
 public:
  explicit LockWatch(std::filesystem::path folder, const LockTimes& times = {},
                     RunOwner self = this_process())
      : folder_(std::move(folder)), silence_(times.silence), self_(std::move(self)) {}

  enum class State {
    kFree,    ///< no lock, or its owner is gone: its process has ended, or its SLURM job was restarted
    kHeld,    ///< the owner's process is running, or its heartbeat has changed
    kSilent,  ///< the owner's process cannot be seen, and its heartbeat has not changed since the first look
  };
  /// Does not wait. Throws DataError if the file system fails.
  State look();
  /// The lock at the last look.
  const LockChain& chain() const { return chain_; }

 private:
  std::filesystem::path folder_;
  std::chrono::milliseconds silence_;
  RunOwner self_;
  LockChain chain_;
  std::chrono::steady_clock::time_point changed_at_;
  bool is_heard_ = false;  ///< this lock's text has changed since it was first read
};

/// Called once when the lock is waited for or taken over.
using OnLockNotice = std::function<void(const std::string& message)>;

/// Holds the lock of a run folder during its lifetime.
class RunLock {
 public:
  /// Locks the existing folder, and starts a thread that renews the heartbeat.
  ///
  /// Takes over a lock that was left behind: at once if its process is gone or its SLURM job was restarted;
  /// after `silence` without a heartbeat if its process cannot be seen from this host. Throws UsageError with
  /// the owner if another run holds the lock, and DataError if the file system fails.
  static std::unique_ptr<RunLock> acquire(const std::filesystem::path& folder, const OnLockNotice& notice,
                                          const LockTimes& times = {}, const RunOwner& self = this_process());
  /// The same for a process that only starts others: one of them calls inherit(), becomes the owner and
  /// renews the heartbeat. This object still releases the lock.
  static std::unique_ptr<RunLock> acquire_for_child(const std::filesystem::path& folder,
                                                    const OnLockNotice& notice) {
    return acquire(folder, notice, {.heartbeat = {}});
  }
  /// Becomes the owner of the lock that the parent process acquired. Throws UsageError if the parent does not
  /// hold it.
  static std::unique_ptr<RunLock> inherit(const std::filesystem::path& folder);

  /// Releases the lock if this process still owns it and did not inherit it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws UsageError if this process no longer owns the lock, for example after a long suspension
  /// (SIGSTOP). Reads the files. Call it before writing anything that another run must not lose.
  void check() const;

  /// Whether the heartbeat could not be written for half of the time after which another host takes the lock
  /// over: this process must stop. A process that was suspended meanwhile is not late.
  bool is_late() const { return std::chrono::steady_clock::now() - silence_ / 2 > trying_since_.load(); }

  const RunOwner& owner() const { return owner_; }

 private:
  RunLock(std::filesystem::path folder, RunOwner owner, Descriptor file, bool is_inherited,
          const LockTimes& times);
  void beat(const std::stop_token& stop, std::chrono::milliseconds interval);

  const std::filesystem::path folder_;
  const RunOwner owner_;
  Descriptor file_;  ///< this lock's
  const bool is_inherited_;
  const std::chrono::milliseconds silence_;
  /// When the heartbeat was first tried that is not yet written; the end of time: there is none.
  std::atomic<std::chrono::steady_clock::time_point> trying_since_ =
      std::chrono::steady_clock::time_point::max();
  std::jthread heartbeat_;
};

}  // namespace sdp
