#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sweep/sweep.h"

namespace sdp {

struct SweepOptions {
  std::string program;                            ///< argv[0], for those who look at the processes
  std::optional<int64_t> processes_per_run = {};  ///< --nproc of every run
};

/// Writes sweep.json and runs what is not done, one run after another, each a child process of this program
/// with --resume=if-any. Prints a line when a run starts and ends; what the runs print goes to the terminal
/// where there is one, else into output.txt of each run's folder, whose last lines are shown when it fails.
///
/// Any number of processes, on any hosts that see the folder, may do this at the same time. A run belongs to
/// the process that holds its folder's lock (telemetry/run_lock.h). The others go on with the next run; at
/// the end they wait for those that are at work elsewhere, and take over one whose process is gone.
///
/// A run that fails does not keep the others from running; all that failed are named at the end. Each
/// process tries a run once. SIGINT, SIGTERM, SIGUSR1 and SIGHUP are passed on to the run, and no other is
/// started after it. When this process is killed, so is its run.
///
/// Returns the program's exit code: 75 where it was stopped, by a signal to it or to a run (called again, it
/// goes on), otherwise that of the first run that failed, 4 for one that was killed. Throws UsageError when
/// the folder cannot be made, DataError when a file cannot be written.
///
/// Call it before other threads exist (see AwaitedSignals).
int run_sweep(const Sweep& sweep, const SweepOptions& options);

}  // namespace sdp
