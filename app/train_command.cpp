#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint/atomic_file.h"
#include "comm/launcher.h"
#include "commands.h"
#include "spec/error.h"
#include "spec/load.h"
#include "spec/print.h"
#include "train/device.h"
#include "train/run_text.h"
#include "train/trainer.h"

namespace sdp {
namespace {

/// Runs this process's share of the job.
int run_rank(const ExperimentSpec& spec, const Ranks& ranks, const RunFolder& folder, const Logger& log,
             bool resume) {
  const Experiment experiment = make_experiment(spec, ranks.world);
  const at::Device device = choose_device(spec.train.device, ranks.local_rank);
  const int threads = use_cores_of_one_process(ranks.local_world);
  const std::unique_ptr<Communicator> comm = connect(ranks, device, kCollectiveTimeout);
  check_same_everywhere(*comm, "The spec", spec_hash(spec));
  check_same_everywhere(*comm, "The plan", plan_hash(experiment.plan));
  if (ranks.rank == 0) {
    write_file_atomically(folder.spec(), to_yaml(spec));
    write_file_atomically(folder.plan(),
                          plan_json(experiment.plan, experiment.schedule, spec).dump(2) + "\n");
    log.info(describe_start(experiment, device_name(device)));
    log.info(fmt::format("ranks from {}; run folder {}", ranks.source, folder.dir.string()));
  }
  Trainer trainer(experiment, *comm, folder, log, resume, threads);
  return static_cast<int>(trainer.run());
}

int processes_to_start(const TrainArguments& arguments, const ExperimentSpec& spec) {
  if (arguments.processes) return static_cast<int>(*arguments.processes);
  const int devices = device_count(spec.train.device);
  const int fits =
      devices > 0 ? devices : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return default_processes(spec.subnetwork.workers, spec.subnetwork.replicas, fits);
}

}  // namespace

int train_command(const TrainArguments& arguments) {
  ignore_sigpipe();
  const LoadedSpec loaded = load_spec(arguments.spec.configs, arguments.spec.overrides);
  const ExperimentSpec& spec = loaded.spec;
  const std::optional<Ranks> ranks = ranks_from_environment(current_environment());
  const bool launched_here = ranks && !ranks->rendezvous_file.empty();
  if (ranks && !launched_here && arguments.processes)
    throw UsageError(fmt::format("--nproc {}: the processes were already started by {}. Leave --nproc out.",
                                 *arguments.processes, ranks->source));
  const int processes = ranks ? ranks->world : processes_to_start(arguments, spec);
  make_placement(spec.subnetwork.workers, spec.subnetwork.replicas,
                 processes);  // refuses before anything starts

  // The launcher makes the folder for the processes it starts; otherwise rank 0 does.
  const bool first = !ranks || (ranks->rank == 0 && !launched_here);
  const RunFolder folder = first ? create_run_folder(spec.output.dir, spec.name, arguments.resume)
                                 : RunFolder{std::filesystem::path(spec.output.dir) / spec.name};
  if (!ranks && processes > 1) {
    for (const std::string& warning : loaded.warnings)
      std::fprintf(stderr, "warning: %s\n", warning.c_str());
    return launch(processes, arguments.command_line, folder.dir);
  }
  Ranks alone;
  alone.source = "a single process";
  const Ranks& mine = ranks ? *ranks : alone;
  const Logger log =
      make_logger(mine.rank, mine.rank == 0 ? std::optional(folder.log()) : std::nullopt, true);
  if (mine.rank == 0 && !launched_here)
    for (const std::string& warning : loaded.warnings)
      log.warn(warning);
  return run_rank(spec, mine, folder, log, arguments.resume);
}

}  // namespace sdp
