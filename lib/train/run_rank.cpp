#include "train/run_rank.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>

#include "cost/accounting.h"
#include "cost/make_experiment.h"
#include "cost/peak.h"
#include "engine/device.h"
#include "experiment/print.h"
#include "process/identity.h"
#include "run/checkpoint_store.h"
#include "run/log.h"
#include "run/resumed_run.h"
#include "run/run_text.h"
#include "run/shared_run_folder.h"
#include "spec/error.h"
#include "spec/units.h"
#include "subnet/plan.h"
#include "train/trainer.h"

namespace sdp {
namespace {

void tell_plan(const Logger& log, const Experiment& experiment, const Ranks& ranks, const RunFolder& folder,
               at::Device device, int64_t planned_bytes) {
  log.info(describe_start(experiment, device_name(device)));
  log.info(fmt::format("ranks from {}; run folder {}",
                       ranks.source.empty() ? "a single process" : ranks.source, folder.dir.string()));
  const int64_t evaluation =
      cost_of(experiment, ranks.rank).bytes_between_steps() +
      evaluation_bytes(experiment, device.is_cuda(), /*convolution_workspace_bytes=*/0);
  log.info(
      fmt::format("tensors of a process are planned to reach {} in training, {} in evaluation; {} has {}",
                  format_bytes(planned_bytes), format_bytes(evaluation), device_name(device),
                  format_bytes(device_memory_bytes(device))));
}

/// Distinguishes a job from others that may use the same host and port. The spec is compared later, with a
/// separate message.
std::string job_of(const ExperimentSpec& spec, const Ranks& ranks) {
  return fmt::format("of {} processes with run folder {}", ranks.world,
                     std::filesystem::absolute(run_folder_of(spec).dir).lexically_normal().string());
}

}  // namespace

RunFolder run_folder_of(const ExperimentSpec& spec) {
  return RunFolder{std::filesystem::path(spec.output.dir) / spec.name};
}

std::optional<int64_t> saved_step(const RunFolder& folder, Resume resume) {
  if (!finds_checkpoint(folder.dir, resume)) return std::nullopt;
  const CheckpointStore store(folder.dir);
  return resume == Resume::kLatestGood
             ? store.latest_good_step(/*verify_hashes=*/false, [](const std::string&) {})
             : store.latest_step();
}

std::optional<std::filesystem::path> owners_of_run(const RunFolder& folder, Resume resume,
                                                   const ExperimentSpec& spec) {
  const std::optional<int64_t> step = saved_step(folder, resume);
  return step ? owners_to_keep(CheckpointStore(folder.dir), *step, spec) : std::nullopt;
}

void print_notice(const std::string& message) {
  std::printf("%s\n", message.c_str());
  std::fflush(stdout);
}

LockedRunFolder create_and_lock(const ExperimentSpec& spec, bool resume) {
  return create_run_folder(spec.output.dir, spec.name, resume, [](const std::filesystem::path& folder) {
    return RunLock::acquire(folder, print_notice);
  });
}

int run_rank(const ExperimentSpec& spec, const Ranks& started, StopSignals& signals,
             const RankOptions& options) {
  const Resume resume = options.resume;
  const RunFolder folder = run_folder_of(spec);
  std::vector<std::string> warnings = options.warnings;
  const bool launched_here = !started.rendezvous_file.empty();  // the launcher has then created the folder
  std::unique_ptr<RunLock> inherited;
  if (launched_here && started.rank == 0) inherited = RunLock::inherit(folder.dir);
  const Experiment experiment =
      make_experiment(spec, started.world, owners_of_run(folder, resume, spec), started.local_world);
  for (std::string& warning : plan_warnings(experiment.plan))
    warnings.push_back(std::move(warning));
  const Ranks ranks = placed_ranks(started, experiment.nodes);
  const at::Device device = choose_device(spec.train.device, ranks);
  if (spec.train.cuda_graph && (!device.is_cuda() || ranks.world > 1))
    throw UsageError(fmt::format(
        "train.cuda_graph: found true, expected false: it is for a run of one process on a GPU, not "
        "for {} on {}",
        ranks.world, device_name(device)));
  if (spec.train.deterministic) use_deterministic_kernels();
  prepare_device(device);
  const bool has_launcher = ranks.world > 1 && !launched_here;
  signals.remember();
  const std::unique_ptr<Communicator> comm =
      connect(ranks, device,
              {.backend = spec.train.backend,
               .timeout = std::chrono::seconds(spec.train.collective_timeout_s),
               .job = job_of(spec, ranks),
               .folder = folder.dir,
               .stop_descriptor = signals.descriptor(),
               .parent = has_launcher ? options.parent : 0});
  check_same_everywhere(*comm, "The spec", spec_hash(spec));
  for (std::string& warning : divide_cores(*comm))
    warnings.push_back(std::move(warning));
  check_same_everywhere(*comm, "The plan", plan_hash(experiment.plan));
  const SharedRunFolder run =
      share_run_folder(*comm, folder, {.host = host_name(), .threads = at::get_num_threads()}, [&] {
        return launched_here ? std::move(inherited) : create_and_lock(spec, resume != Resume::kNo).lock;
      });

  const bool first = ranks.rank == 0;
  const Logger log =
      make_logger(ranks.rank, first ? std::optional(folder.log()) : std::nullopt, /*console=*/true);
  if (first)
    for (const std::string& warning : warnings)
      log.warn(warning);
  // Recorded while there is memory.
  const int64_t planned_bytes = planned_peak(experiment, ranks.rank, device.is_cuda()).total();
  try {
    if (first) tell_plan(log, experiment, ranks, folder, device, planned_bytes);
    const ExitCode code = train(experiment, *comm, run, log, resume);
    signals.ignore();
    return static_cast<int>(code);
  } catch (const Error& error) {
    log.error(error.what());
    if (error.code() != ExitCode::kUsage) log.begin_file();  // a run that is refused stays as it is
    comm->abandon();
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    log.error(describe_out_of_memory(error, ranks.rank, planned_bytes, device));
    log.begin_file();
    comm->abandon();
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace sdp
