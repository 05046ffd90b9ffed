#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "comm/cores.h"
#include "comm/launcher.h"
#include "command_line.h"
#include "commands.h"
#include "cost/make_experiment.h"
#include "engine/device.h"
#include "experiment/load.h"
#include "experiment/resume.h"
#include "inputs.h"
#include "process/signals.h"
#include "run/checkpoint_store.h"
#include "run/resumed_run.h"
#include "run/save_checkpoint.h"
#include "spec/error.h"
#include "spec/text.h"
#include "train/run_rank.h"

namespace sdp {
namespace {

/// The spec of this command, checked against that of the checkpoint that it resumes from.
ExperimentSpec spec_to_run(const LoadedSpec& loaded, Resume resume) {
  ExperimentSpec spec = loaded.spec;
  const RunFolder folder = run_folder_of(spec);
  check_run_files(folder, /*to_write=*/false);
  if (const std::optional<int64_t> step = saved_step(folder, resume)) {
    const ExperimentSpec saved =
        load_saved_spec(CheckpointStore(folder.dir).verified_file(*step, kSavedSpec));
    keep_length(saved, spec, loaded.length_from);
    check_resumable(saved, spec);
  }
  return spec;
}

LoadedSpec spec_to_continue(const TrainArguments& arguments) {
  if (arguments.resume == Resume::kNo)
    throw UsageError(fmt::format("--run {}: continues a run. Add --resume.", arguments.run_dir.string()));
  return load_spec_of_run(arguments.run_dir, arguments.spec.overrides, NamedFiles::kMustExist);
}

/// The experiment with two steps, an evaluation on a few samples, and a run folder of this user among the
/// temporary files (TMPDIR).
ExperimentSpec smoke_test_of(ExperimentSpec spec) {
  const std::string folder = "sdp-train-smoke-" + std::to_string(getuid());
  spec.output.dir = (std::filesystem::temp_directory_path() / folder).string();
  spec.train.max_steps = 2;
  spec.train.log_every_steps = 1;
  spec.checkpoint.at_start = false;
  spec.checkpoint.every_steps = 2;
  EvalSpec& eval = spec.eval;
  const int64_t few = 2 * *eval.batch_size;
  eval.every_epochs = 0;
  eval.max_samples = std::min(eval.max_samples.value_or(few), few);
  eval.max_samples_per_subnetwork = std::min(eval.max_samples_per_subnetwork.value_or(few), *eval.batch_size);
  eval.recalibrate_batches = std::min<int64_t>(*eval.recalibrate_batches, 1);
  // The trial of auto takes many batches.
  if (eval.branch_scale == BranchScale::kAuto) eval.branch_scale = BranchScale::kSurvival;
  return spec;
}

/// Removes the run folder of a smoke test, at the beginning (it may be left of one that was killed) and at
/// the end.
class SmokeTestFolder {
 public:
  explicit SmokeTestFolder(const ExperimentSpec& spec) : dir_(run_folder_of(spec).dir) {
    std::filesystem::remove_all(dir_);
  }
  ~SmokeTestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
    std::filesystem::remove(dir_.parent_path(), ignored);  // if no other smoke test runs
  }
  SmokeTestFolder(const SmokeTestFolder&) = delete;
  SmokeTestFolder& operator=(const SmokeTestFolder&) = delete;

 private:
  std::filesystem::path dir_;
};

}  // namespace

int processes_of_run(const ExperimentSpec& spec, std::optional<int64_t> asked_for) {
  if (asked_for) return static_cast<int>(*asked_for);
  const StopSignalsBlocked here;
  const int devices = device_count(spec.train.device);
  return default_processes(spec.subnetwork.workers, spec.subnetwork.replicas,
                           devices > 0 ? devices : available_cores());
}

/// What a command about the run needs to find a network of the user's own.
std::string network_option(const ExperimentSpec& spec) {
  if (!spec.model.kind.is<OwnSpec>()) return "";
  const char* const network = std::getenv(kNetworkVariable);
  return " --network " + (network ? shell_word(network) : "FILE.py:CLASS");
}

int train_command(const TrainArguments& arguments) {
  const pid_t parent = getppid();
  StopSignals signals(static_cast<int>(ExitCode::kPreempted));
  ignore_sigpipe();
  const LoadedSpec loaded = arguments.run_dir.empty()
                                ? load_run_spec(arguments.spec.configs, arguments.spec.overrides)
                                : spec_to_continue(arguments);
  const ExperimentSpec spec =
      arguments.smoke ? smoke_test_of(loaded.spec) : spec_to_run(loaded, arguments.resume);
  const std::optional<Ranks> ranks = ranks_from_environment(current_environment());
  std::optional<SmokeTestFolder> smoke_test;
  if (arguments.smoke && (!ranks || (ranks->rank == 0 && ranks->rendezvous_file.empty())))
    smoke_test.emplace(spec);
  if (smoke_test) print_notice("smoke test: two steps and a small evaluation; nothing is kept");
  if (ranks && ranks->rendezvous_file.empty() && arguments.processes)
    throw UsageError(fmt::format("--nproc {}: the processes were already started by {}. Leave --nproc out.",
                                 *arguments.processes, ranks->source));
  const int processes = ranks ? ranks->world : processes_of_run(spec, arguments.processes);
  if (ranks || processes == 1) {
    const int code = run_rank(spec, ranks.value_or(Ranks()), signals,
                              {.resume = arguments.resume, .warnings = loaded.warnings, .parent = parent});
    if (code == 0 && !arguments.smoke && (!ranks || ranks->rank == 0))
      print_notice("sdp-train export --run " + shell_word(run_folder_of(spec).dir.string()) +
                   network_option(spec) + " --out model.safetensors writes the model");
    return code;
  }
  // Invalid experiments are refused before anything starts.
  check_processes(spec.train.device, spec.train.backend, processes);
  const RunFolder folder = run_folder_of(spec);
  const bool goes_on = finds_checkpoint(folder.dir, arguments.resume);
  if (!goes_on) make_experiment(spec, processes);
  const LockedRunFolder locked =
      create_run_folder(spec.output.dir, spec.name, /*resume=*/arguments.resume != Resume::kNo,
                        [](const std::filesystem::path& dir) {
                          return RunLock::acquire(dir, print_notice, {.heartbeat = {}});
                        });
  if (goes_on) make_experiment(spec, processes, owners_of_run(folder, arguments.resume, spec));
  signals.block();  // for the launcher, and for its processes until they handle signals
  const int code = launch(processes, arguments.command_line, locked.folder.dir);
  if (code == static_cast<int>(ExitCode::kPeerLost))  // perhaps rank 0, which could not say it
    std::fprintf(stderr, "%s\n", text_of_last_checkpoint(CheckpointStore(folder.dir).latest_step()).c_str());
  return code;
}

}  // namespace sdp
