#pragma once

// sdp-train's own launcher: W copies of this program on this host, for users without torchrun, mpirun or
// srun. Free of LibTorch.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sdp {

/// Starts `processes` copies of the running executable with `arguments` (argv, its first entry the program's
/// name) and waits for all of them. Each finds its rank in torchrun's variables and meets the others over a
/// FileStore in memory (SDP_RENDEZVOUS_FILE, see comm/ranks.h), so that no port and no folder is needed.
///
/// Output: rank 0 writes to the console. The others append stdout and stderr to log_folder/rank-N.txt,
/// removed again where they wrote nothing. The rank that is to
/// blame for a failure is named and its last lines are shown; others that were killed are named too. The log
/// folder must exist.
///
/// Signals: every SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless ignored, as under nohup) is passed on once to
/// each process that still runs; every process is in a process group of its own, so that a terminal's Ctrl-C
/// does not reach it twice. What a signal means is the processes' business: after the first one they may take
/// as long as they need to save a checkpoint and end with 75, as no deadline begins with a signal; a second
/// one is passed on as well and ends them at once. When this process is killed, the kernel kills the others.
///
/// After one process has failed, before or after a signal, the others get 5 s to end by themselves, then
/// SIGTERM, 5 s later SIGKILL. A process that ended with 0 or 75 (preempted) has not failed; but 75 without a
/// signal that was passed on means that one came to it alone, and the others are then treated alike.
///
/// Returns the program's exit code: that of the first process that failed for a reason of its own; 4 for one
/// killed by a signal; 4 when all failed ones only lost a peer; 75 when some were preempted and none failed.
///
/// Call it before other threads exist: it blocks the signals that it waits for in the calling thread only.
/// Throws UsageError when a log file cannot be made, std::system_error when a process cannot be started.
int launch(int processes, const std::vector<std::string>& arguments, const std::filesystem::path& log_folder);

/// W where the user did not say: R n when that fits `available` (devices, or cores), else the largest divisor
/// of n that fits, at least 1. n: workers, R: replicas.
int default_processes(int64_t workers, int64_t replicas, int available);

/// Writing to a lost peer's socket must be an error, not the end of the process: gloo does not guard its
/// sockets. Every process that communicates calls this first.
void ignore_sigpipe();

}  // namespace sdp
