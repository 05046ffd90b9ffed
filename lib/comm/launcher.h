#pragma once

// sdp-train's built-in launcher: starts W copies of this program on this host, for users without torchrun,
// mpirun or srun. Does not depend on LibTorch.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sdp {

/// Starts `processes` copies of the running executable with `arguments` (argv; the first entry is the
/// program's name) and waits for all of them. Each process finds its rank in torchrun's variables and meets
/// the others through a FileStore in memory (SDP_RENDEZVOUS_FILE, see comm/ranks.h), so neither a port nor a
/// folder is needed.
///
/// Output: rank 0 writes to the console. The other ranks append stdout and stderr to log_folder/rank-N.txt;
/// the file is removed if it is empty at the end. After a failure the launcher names the rank that caused it
/// and shows that rank's last lines; it also names other ranks that were killed. The log folder must exist.
///
/// Signals: every SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless ignored, as under nohup) is passed on once to
/// each process that is still running. Every process has its own process group, so that a terminal's Ctrl-C
/// does not reach it twice. A signal sets no deadline: after the first one the processes may take as long as
/// they need to save a checkpoint and end with 75. A second signal is passed on as well and ends them at
/// once. If the launcher is killed, the kernel kills the processes.
///
/// After one process has failed, before or after a signal, the others have 5 s to end by themselves; then
/// they receive SIGTERM, and 5 s later SIGKILL. A process that ended with 0 or 75 (preempted) has not failed.
/// But if a process ends with 75 although no signal was passed on, that process alone received a signal, and
/// the others are ended in the same way.
///
/// Returns the program's exit code: the exit code of the first process that failed for a reason of its own (4
/// if a signal killed it); 4 if all failed processes only lost a peer; 75 if some were preempted and none
/// failed.
///
/// Call it before other threads exist: it blocks the signals that it waits for in the calling thread only.
/// Throws UsageError if a log file cannot be created, and std::system_error if a process cannot be started.
int launch(int processes, const std::vector<std::string>& arguments, const std::filesystem::path& log_folder);

/// The number of processes W if the user did not set it: R n if at most `available` (devices or cores), else
/// the largest divisor of n that is, at least 1. n: workers, R: replicas.
int default_processes(int64_t workers, int64_t replicas, int available);

/// Makes writing to a lost peer's socket an error instead of ending the process: Gloo does not protect its
/// sockets against SIGPIPE. Every process that communicates must call this first.
void ignore_sigpipe();

}  // namespace sdp
