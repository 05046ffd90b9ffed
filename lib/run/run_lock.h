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
// - An owner suspended within the release for longer than `silence` removes its successor's lock, which that
//   one notices (check()).

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
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
  int64_t pid = 0, process_start = 0;
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

struct LockTimes {
  std::chrono::milliseconds heartbeat{5000};  ///< between two; 0: none
  /// How long an owner whose process cannot be seen may have no heartbeat before it counts as gone. Measured
  /// with the observer's clock from its first poll, as clocks of different hosts are not compared.
  std::chrono::milliseconds silence{60000};
};

enum class LockState {
  kFree,    ///< no lock, or its owner is gone: its process has ended, or its SLURM job was restarted
  kHeld,    ///< the owner's process is running, or its heartbeat has changed
  kSilent,  ///< the owner's process cannot be seen, and its heartbeat has not changed since the first poll
};

/// The lock of a folder when it was looked at.
struct LockChain {
  std::vector<std::filesystem::path> files = {};          ///< from run.lock to the owner's; none: not locked
  std::string text = {};                                  ///< of the last file
  std::optional<RunOwner> owner = {};                     ///< none if that is unfinished or damaged
  std::filesystem::path next = {};                        ///< the file that takes over this lock
  std::chrono::steady_clock::time_point changed_at = {};  ///< the first poll that found this text
  bool is_heard = false;                                  ///< an earlier poll found another heartbeat

  bool is_held_by(const RunOwner& process) const { return owner && owner->id == process.id; }
  /// For the process `self`.
  LockState state(const RunOwner& self = this_process(), const LockTimes& times = {}) const;
};

/// Looks at the lock of a folder, which another process may hold. `before`: what the last poll found, if
/// there was one. Throws DataError if the file system fails.
LockChain read_lock(const std::filesystem::path& folder, const LockChain& before = {});

/// Holds the lock of a run folder during its lifetime.
class RunLock {
 public:
  /// Locks the existing folder, and starts a thread that renews the heartbeat.
  ///
  /// Takes over a lock that was left behind: at once if its process is gone or its SLURM job was restarted;
  /// after `silence` without a heartbeat if its process cannot be seen from this host. `notice` is called
  /// when the lock is waited for or taken over. Throws UsageError with the owner if another run holds the
  /// lock, and DataError if the file system fails.
  static std::unique_ptr<RunLock> acquire(const std::filesystem::path& folder,
                                          const std::function<void(const std::string& message)>& notice,
                                          const LockTimes& times = {}, const RunOwner& self = this_process());
  /// Becomes the owner of the lock that the parent process, which only starts others, acquired without a
  /// heartbeat. The parent still releases it. Throws UsageError if the parent does not hold it.
  static std::unique_ptr<RunLock> inherit(const std::filesystem::path& folder);

  /// Releases the lock if this process still owns it and did not inherit it.
  ~RunLock();

  /// Throws UsageError if this process no longer owns the lock, for example after a long suspension
  /// (SIGSTOP). Reads the files. Call it before writing anything that another run must not lose.
  void check() const;

  /// Whether the heartbeat could not be written for half of the time after which another host takes the lock
  /// over: this process must stop. A process that was suspended meanwhile is not late.
  bool is_late() const { return std::chrono::steady_clock::now() > late_after_.load(); }
  const RunOwner& owner() const { return owner_; }

 private:
  RunLock(const std::filesystem::path& folder, const RunOwner& owner, Descriptor file, const LockTimes& times,
          bool is_inherited = false)
      : folder_(folder), owner_(owner), file_(std::move(file)), times_(times), is_inherited_(is_inherited) {}
  void write_heartbeats();

  const std::filesystem::path folder_;
  const RunOwner owner_;
  Descriptor file_;  ///< this lock's
  const LockTimes times_;
  const bool is_inherited_;
  static constexpr auto kNever = std::chrono::steady_clock::time_point::max();
  /// While a heartbeat is being written, which may fail or not return.
  std::atomic<std::chrono::steady_clock::time_point> late_after_ = kNever;
  std::promise<void> ends_;
  std::jthread heartbeat_ = times_.heartbeat.count() > 0 ? std::jthread(&RunLock::write_heartbeats, this)
                                                         : std::jthread();
};

}  // namespace sdp
