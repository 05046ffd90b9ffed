#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/checkpointing.h"
#include "checkpoint/files/digest.h"
#include "checkpoint/files/store.h"
#include "checkpoint/resumed_run.h"
#include "comm/cores.h"
#include "comm/launcher.h"
#include "commands.h"
#include "device/device.h"
#include "experiment/spec/load.h"
#include "experiment/spec/resume.h"
#include "hub/import.h"
#include "hub/library_config.h"
#include "hub/library_files.h"
#include "import_data.h"
#include "model/layouts.h"
#include "print_warnings.h"
#include "process/signals.h"
#include "run_spec.h"
#include "smoke_test.h"
#include "spec/error.h"
#include "spec/text.h"
#include "telemetry/work.h"
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

/// For several files, the hash of their hashes, one per line.
ImportSource import_source(const std::filesystem::path& path, ProgressLine& line) {
  Work work(line, "hashing the weights");
  ImportSource source{.path = std::filesystem::absolute(path).lexically_normal().string()};
  std::string hashes;
  const std::vector<std::filesystem::path> files = library_files(path);
  for (const std::filesystem::path& file : files) {
    const FileDigest digest = digest_file(file, work.on_progress());
    source.bytes += digest.bytes;
    source.xxh3_128 = digest.xxh3_128;
    hashes += digest.xxh3_128 + "\n";
  }
  if (files.size() > 1) source.xxh3_128 = xxh3_128(hashes);
  return source;
}

/// The spec of an import, with the values of config.json where it leaves the model's keys unset, and these
/// values.
std::pair<LoadedSpec, std::vector<std::string>> spec_for_import(const ImportArguments& arguments) {
  auto [configs, overrides] = arguments.spec;
  std::vector<std::string> taken;
  for (;;) {  // once more, as other defaults may follow from the values that were taken
    LoadedSpec loaded = load_run_spec(configs, overrides);
    Experiment sketch;
    sketch.spec = loaded.spec;
    sketch.plan.layout = structure_of(loaded.spec.model, loaded.spec.data.sequence_length());
    std::vector<std::string> values =
        library_config_values(sketch, arguments.from, arguments.new_head, /*must_fit=*/false);
    std::erase_if(values, [&](const std::string& value) {
      return loaded.positions.is_set(value.substr(0, value.find('=')));
    });
    if (values.empty()) return {std::move(loaded), std::move(taken)};
    overrides.insert(overrides.end(), values.begin(), values.end());
    taken.insert(taken.end(), values.begin(), values.end());
  }
}

}  // namespace

int processes_of_run(const ExperimentSpec& spec, std::optional<int64_t> asked_for) {
  if (asked_for) return static_cast<int>(*asked_for);
  const StopSignalsBlocked here;
  const int devices = device_count(spec.train.device);
  return default_processes(spec.subnetwork.workers, spec.subnetwork.replicas,
                           devices > 0 ? devices : available_cores());
}

int import_command(const ImportArguments& arguments) {
  const auto [loaded, taken] = spec_for_import(arguments);
  const ExperimentSpec& spec = loaded.spec;
  print_warnings(loaded.warnings);
  const Experiment experiment = make_experiment(spec, /*processes=*/1);
  const NewFolders new_folders(run_folder_of(spec));
  const LockedRunFolder locked = create_and_lock(spec, /*resume=*/false);
  NewFiles new_files(locked.folder);
  const RunFolder& folder = locked.folder;
  ProgressLine line(STDERR_FILENO);
  std::string wrapper;
  {
    RunHistory history = new_history();
    history.imported = import_source(arguments.from, line);
    const RunDescription description = describe_run(experiment, history);
    Work work(line, "importing the model");
    try {
      wrapper = import_model(experiment, arguments.from, arguments.new_head, description, folder.dir,
                             work.on_progress());
    } catch (const DataError& error) {
      throw DataError(error.what() + advice_on_names(arguments.from));
    }
    write_description(description, folder.dir);
  }
  new_files.keep();
  std::printf("%s: checkpoint 0 has the %zu tensors of the model from %s\n", folder.dir.c_str(),
              experiment.plan.layout.parameters.size() + experiment.plan.layout.buffers.size(),
              arguments.from.c_str());
  if (!wrapper.empty())
    print_notice("The names of the tensors were read without \"" + wrapper +
                 "\", which a module around the model puts before them.");
  if (arguments.new_head)
    print_notice("The head was drawn anew (--new-head); all else has the weights of the files.");
  for (const std::string& difference : differences_from_data(spec, arguments.from, arguments.new_head))
    print_notice("warning: " + difference);
  if (!taken.empty())
    print_notice(
        fmt::format("The spec does not set these, so they are config.json's: {}", fmt::join(taken, " ")));
  print_notice(fmt::format("Train it: sdp-train --run {} --resume", shell_word(folder.dir.string())));
  if (has_subnetworks(experiment.plan) && !experiment.plan.keeps_frozen_units())
    print_notice(
        "With subnetwork.masking: forward every worker lacks some of the branches that the weights were "
        "trained with, "
        "so training starts from a higher loss than the model's. Backward masking and coverage 1 start from "
        "its own.");
  return 0;
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
                   " --out model.safetensors writes the model");
    return code;
  }
  // Invalid experiments are refused before anything starts.
  check_processes(spec.train.device, spec.train.backend, processes);
  const RunFolder folder = run_folder_of(spec);
  const bool goes_on = finds_checkpoint(folder.dir, arguments.resume);
  if (!goes_on) make_experiment(spec, processes);
  const LockedRunFolder locked = create_run_folder(
      spec.output.dir, spec.name, /*resume=*/arguments.resume != Resume::kNo,
      [](const std::filesystem::path& dir) { return RunLock::acquire_for_child(dir, print_notice); });
  if (goes_on) make_experiment(spec, processes, owners_of_run(folder, arguments.resume, spec));
  signals.block();  // for the launcher, and for its processes until they handle signals
  const int code = launch(processes, arguments.command_line, locked.folder.dir);
  if (code == static_cast<int>(ExitCode::kPeerLost))  // perhaps rank 0, which could not say it
    std::fprintf(stderr, "%s\n", text_of_last_checkpoint(CheckpointStore(folder.dir).latest_step()).c_str());
  return code;
}

}  // namespace sdp
