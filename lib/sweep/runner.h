#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sweep/sweep.h"

namespace sdp {

struct SweepOptions {
  std::string program;                            ///< argv[0], shown in process lists
  std::optional<int64_t> processes_per_run = {};  ///< --nproc of every run
};

/// Writes sweep.json and runs everything that is not done, one run after another. Each run is a child process
/// of this program with --resume=if-any. Prints a line when a run starts and ends. The output of runs goes to
/// the terminal, if there is one, otherwise into output.txt of the run folder; if a run fails, its last lines
/// are printed.
///
/// Any number of processes, on any hosts that see the folder, may run the same sweep. A run belongs to the
/// process that holds the lock of its folder (telemetry/run_lock.h); the others continue with the next run.
/// At the end they wait for runs in other processes, and take over a run whose process is gone.
///
/// A failed run does not stop the sweep; all failed runs are named at the end. Each process tries a run once.
/// SIGINT, SIGTERM, SIGUSR1 and SIGHUP are forwarded to the current run, and no other run is started after
/// it. If this process is killed, its run is killed too.
///
/// Returns the program's exit code: 75 if a signal stopped the sweep or a run (run it again to continue),
/// otherwise the code of the first run that failed, 4 for one that was killed. Throws UsageError if the
/// folder cannot be created, DataError if a file cannot be written.
///
/// Call it before the process starts other threads (see AwaitedSignals).
int run_sweep(const Sweep& sweep, const SweepOptions& options);

}  // namespace sdp
