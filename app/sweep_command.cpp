#include <fmt/format.h>

#include <cstdio>

#include "comm/ranks.h"
#include "commands.h"
#include "experiment/experiment.h"
#include "spec/error.h"
#include "sweep/runner.h"
#include "sweep/sweep.h"
#include "sweep/sweep_spec.h"

namespace sdp {

int sweep_command(const SweepArguments& arguments) {
  if (const auto ranks = ranks_from_environment(current_environment()))
    throw UsageError(fmt::format(
        "sweep starts the processes of each run itself, but was started by {} as one of several. Start it "
        "without srun, mpirun or torchrun.",
        ranks->source));
  const CheckRun check = [&](ExperimentSpec spec, const auto& saved_plan) {
    // Checks do not depend on the owner sets, whose search would take minutes for a large sweep.
    Assignment& assignment = spec.subnetwork.assignment;
    if (assignment == Assignment::kBalanced || assignment == Assignment::kEqualUnits)
      assignment = Assignment::kWindow;
    make_experiment(spec, processes_of_run(spec, arguments.processes), saved_plan);
  };
  const Sweep sweep = open_sweep(read_sweep(arguments.config), arguments.overrides,
                                 arguments.dry_run ? NamedFiles::kNotNeeded : NamedFiles::kMustExist, check);
  if (arguments.dry_run) {
    std::fputs(fmt::format("sweep {}: {} runs in {}\n{}", sweep.name, sweep.runs.size(),
                           sweep.folder.string(), describe(sweep))
                   .c_str(),
               stdout);
    std::fflush(stdout);
  }
  refuse_changed_runs(sweep);
  return arguments.dry_run
             ? 0
             : run_sweep(sweep, {.program = arguments.program, .processes_per_run = arguments.processes});
}

}  // namespace sdp
