#pragma once

// The owner of a run folder, as named by its lock file.

#include <cstdint>
#include <optional>
#include <string>

namespace sdp {

/// A process that has locked a run folder.
struct RunOwner {
  std::string id;       ///< drawn at random for each lock
  std::string host;     ///< for messages only
  std::string machine;  ///< boot id and PID namespace: processes with the same value see each other's PIDs
  int64_t pid = 0;
  int64_t process_start =
      0;            ///< clock ticks since boot; distinguishes a process from a later one with the same PID
  std::string job;  ///< SLURM_JOB_ID; empty outside of SLURM
  int64_t job_restarts = 0;  ///< SLURM_RESTART_COUNT
  std::string since;         ///< UTC, "2026-11-22T18:30:00Z"

  bool operator==(const RunOwner&) const = default;
};

/// 16 hexadecimal digits drawn at random.
std::string random_id();

/// This process, with a new id.
RunOwner this_process();

/// "process 77 on host node1 (SLURM job 5, restart 1), since 2026-11-22T18:30:00Z".
std::string describe(const RunOwner& owner);

enum class OwnerState {
  kRunning,  ///< its process exists
  kGone,     ///< its process has ended, or its SLURM job was restarted
  kUnknown   ///< its process cannot be seen from here
};

/// State of `owner`, as `observer` sees it.
OwnerState state_of(const RunOwner& owner, const RunOwner& observer);

/// The text of a lock file: a line of JSON whose first key is the heartbeat, a number of fixed width. Only
/// its digits change while the lock is held.
std::string lock_text(const RunOwner& owner, int64_t heartbeat);
/// Digits of the heartbeat in that text, beginning at `heartbeat_offset`.
std::string heartbeat_text(int64_t heartbeat);
size_t heartbeat_offset();
/// std::nullopt if the text is not that of a lock file, for example while the file is being written.
std::optional<RunOwner> parse_lock_text(const std::string& text);

/// Name of this host; "localhost" if it has none.
std::string host_name();
/// The current time in UTC, "2026-11-22T18:30:00Z".
std::string utc_now();

}  // namespace sdp
