#include "train/prepare_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <tuple>

#include "cost/device_profile.h"
#include "engine/device.h"
#include "engine/train_step.h"
#include "experiment/resume.h"
#include "run/checkpoint_reader.h"
#include "run/metrics.h"
#include "run/restore_checkpoint.h"
#include "run/resumed_run.h"
#include "run/run_text.h"

namespace sdp {
namespace {

/// The peak of all processes' devices together; none where that of one is unknown. With Gloo several
/// processes may share a GPU, and each then has less than the data sheet states. Collective.
std::optional<double> peak_flops_per_s(const ExperimentSpec& spec, Communicator& comm) {
  const bool has_own_device = comm.size() == 1 || comm.is_stream_ordered();
  const std::optional<double> mine =
      has_own_device ? data_sheet_flops_per_s(gpu_name(comm.device()), spec.train.precision) : std::nullopt;
  double sum = 0;
  for (const std::string& peak : comm.all_gather_strings(mine ? std::to_string(*mine) : "")) {
    if (peak.empty()) return std::nullopt;
    sum += std::stod(peak);
  }
  return sum;
}

/// Step of the checkpoint to resume from, which rank 0 finds and verifies. Collective.
std::optional<int64_t> step_to_resume_from(Resume resume, const CheckpointStore& store,
                                           const PreparedRun& run) {
  Communicator& comm = run.comm;
  check_same_everywhere(comm, "The checkpoint to start from (--resume)",
                        std::to_string(static_cast<int>(resume)));
  if (resume == Resume::kNo) return std::nullopt;
  std::string found;
  if (comm.rank() == 0) {
    ProgressTask task(run.console.line(), "verifying the checkpoint");
    std::optional<int64_t> step;
    if (resume == Resume::kLatestGood) {
      step = store.latest_good_step(
          /*verify_hashes=*/true,
          [&](const std::string& what) { run.console.warn("skipped the checkpoint " + what); },
          task.on_progress());
    } else {
      step = store.latest_step();
      if (step) store.read(*step, /*verify_hashes=*/true, task.on_progress());
    }
    if (step) found = std::to_string(*step);
  }
  comm.patient_barrier();
  found = comm.all_gather_strings(found).front();
  return found.empty() ? std::nullopt : std::optional<int64_t>(std::stoll(found));
}

/// Whether a resumed run has still to evaluate the step of its checkpoint, because it was stopped before.
/// Read from rank 0's metrics; collective.
bool owes_evaluation(const PreparedRun& run) {
  if (run.step == 0 || !decide(run.experiment.spec, run.steps, run.step).evaluates) return false;
  const bool owes = run.comm.rank() == 0 && !find_evaluation(run.shared.folder.metrics(), run.step);
  return !run.comm.all_gather_strings(owes ? "owes" : "").front().empty();
}

/// What a run that continues with other samples per step, or tokens per sample, has consumed.
void tell_position(const ExperimentSpec& saved, const ExperimentSpec& now, const RunSteps& steps,
                   RunConsole& console) {
  const bool is_resized = saved.data.sequence_length() != now.data.sequence_length();
  if (!is_resized && samples_per_step(saved) == samples_per_step(now)) return;
  const int64_t samples = steps.samples_after(steps.origin.step);
  console.info(fmt::format(
      "a step has {} samples (was {}): the run goes on with the next unread one, after {} samples or {:.4g} "
      "epochs{}",
      samples_per_step(now), samples_per_step(saved), samples, steps.epochs_after(steps.origin.step),
      is_resized ? fmt::format(". Samples of {} tokens (were {}) have another order: of this epoch, some "
                               "tokens are read twice and some not at all",
                               now.data.sequence_length(), saved.data.sequence_length())
                 : ""));
}

void tell_resumed(const PreparedRun& run, const Experiment& saved, const RunSteps& saved_steps,
                  const Manifest& manifest) {
  const RunSteps& steps = run.steps;
  RunConsole& console = run.console;
  const int processes = run.comm.size(), threads = run.shared.threads(run.comm.rank());
  if (manifest.step < steps.length.total_steps)
    console.info(fmt::format("resuming at step {} of {}", manifest.step, steps.length.total_steps));
  if (manifest.step == 0) return;
  tell_position(saved.spec, run.experiment.spec, steps, console);
  const auto rate = [&](const ExperimentSpec& spec, const RunLength& length) {
    return fmt::format("{:.4g}", learning_rate(spec.schedule, spec.optimizer.lr(), length, manifest.step));
  };
  const std::string was = rate(saved.spec, saved_steps.length), is = rate(run.experiment.spec, steps.length);
  if (manifest.step < steps.length.total_steps && was != is)
    console.info(fmt::format("the learning rate goes on with {}; as the run was before, with {}", is, was));
  if (!is_divided_as(saved, run.experiment)) {
    const SubnetPlan& plan = run.experiment.plan;
    const bool has_statistics = !plan.layout.buffers.empty();
    return console.info(fmt::format(
        "the network is divided anew, among {} workers of coverage {}, {} replicas: values and optimizer "
        "state are carried over{}",
        plan.workers, coverage_text(plan), run.experiment.spec.subnetwork.replicas,
        has_statistics ? ", BatchNorm statistics are averaged over owners" : ""));
  }
  const bool sums_alike = manifest.processes == processes || run.experiment.spec.exchange.is_local();
  if (!sums_alike || manifest.threads != threads)
    console.warn(
        fmt::format("the checkpoint was made by {} processes with {} threads each, this run has {} with {}; "
                    "results agree up to rounding, not bit for bit",
                    manifest.processes, manifest.threads, processes, threads));
}

/// Continues the checkpoint's history or begins a new one. Warns of changes of the spec.
RunHistory history_of(const PreparedRun& run, const CheckpointStore& store, std::optional<int64_t> step) {
  std::vector<SpecChange> changes;
  RunHistory history = new_history();
  if (step) {
    SavedRun saved = read_saved_run(store, *step);
    for (const std::string& warning : check_resumable(saved.spec, run.experiment.spec))
      run.console.warn(warning);
    changes = changes_between(saved.spec, run.experiment.spec);
    history = std::move(saved.history);
  }
  continue_history(history, step.value_or(0), changes, run.data.train_identity, run.data.test_identity);
  return history;
}

/// Removes lines recorded after the checkpoint, and warns if earlier lines are missing. Returns the number of
/// metrics lines kept.
int64_t cut_back_metrics(const RunFolder& folder, const Manifest* saved, RunConsole& console) {
  const int64_t last_step = saved ? saved->step : -1;
  const int64_t kept_lines = cut_back(folder.metrics(), last_step);
  cut_back(folder.trace(), last_step);
  if (saved && kept_lines < saved->metrics_lines)
    console.warn(
        fmt::format("{} has {} lines up to step {}, but had {} when that checkpoint was saved: the missing "
                    "lines are not in reports and in the summary's times",
                    folder.metrics().string(), kept_lines, saved->step, saved->metrics_lines));
  return kept_lines;
}

/// Of rank 0, which holds the lock.
StartRecord start_record(const PreparedRun& run, const std::string& checkpoint) {
  const RunOwner& owner = run.shared.lock->owner();
  StartRecord record{.step = run.step,
                     .checkpoint = checkpoint,
                     .data_s = run.data.open_s,
                     .time = owner.since,
                     .version = kProgramVersion,
                     .job = owner.job,
                     .job_restarts = owner.job_restarts};
  for (const ProcessPlace& process : run.shared.processes) {
    record.hosts.push_back(process.host);
    record.threads.push_back(process.threads);
  }
  return record;
}

/// Restores the engine's values, and finds what the run has done. Collective.
void restore_run(PreparedRun& run, const CheckpointReader& reader, const CheckpointStore& store) {
  const Manifest& manifest = reader.manifest();
  const ExperimentSpec& spec = run.experiment.spec;
  const bool is_first = run.comm.rank() == 0;
  const int64_t dataset_size = run.data.train_identity.samples;
  const ExperimentSpec saved_spec = read_saved_run(store, manifest.step).spec;
  const Experiment saved =
      read_saved_experiment(store, manifest.step, saved_spec,
                            {{spec.model, spec.data.sequence_length(), run.experiment.plan.layout}});
  for (const std::string& warning :
       check_data(manifest, run.data.train_identity, run.data.test_identity,
                  /*is_resized=*/saved_spec.data.sequence_length() != spec.data.sequence_length()))
    if (is_first) run.console.warn(warning);
  run.steps = run_steps(run.experiment, dataset_size,
                        origin_of_resumed(manifest, saved, run.experiment, dataset_size));
  run.step = manifest.step;
  run.is_resumed = true;
  run.skipped_steps = manifest.skipped_steps;
  // Without a change of the length, it has at most been rounded.
  const auto length_of = [](const TrainSpec& t) { return std::tuple(t.max_steps, t.epochs, t.budget); };
  if (run.step > run.steps.length.total_steps && length_of(saved_spec.train) != length_of(spec.train))
    throw UsageError(
        fmt::format("--resume: the run is at step {}, after its new end, step {}. Set train.{} "
                    "higher, or leave it out to keep the run's length.",
                    run.step, run.steps.length.total_steps, spec.train.max_steps ? "max_steps" : "epochs"));
  restore(reader, saved, run.experiment, run.engines->engines());
  run.owes_evaluation = owes_evaluation(run);
  if (is_first)
    tell_resumed(run, saved, run_steps(saved, manifest.training_data.samples, manifest.origin), manifest);
}

/// Initializes or restores the engine's values; rank 0 prepares the run folder. Collective.
void start(PreparedRun& run, Resume resume) {
  const RunFolder& folder = run.shared.folder;
  const CheckpointStore store(folder.dir);
  const std::optional<int64_t> step = step_to_resume_from(resume, store, run);
  std::optional<CheckpointReader> reader;
  if (step) reader.emplace(folder.dir, step, /*verify_hashes=*/false);
  check_same_everywhere(run.comm, "The checkpoint to start from", reader ? reader->identity() : "none");
  if (reader) {
    restore_run(run, *reader, store);
  } else {
    run.steps = run_steps(run.experiment, run.data.train_identity.samples);
    run.engines->engines().initialize(static_cast<uint64_t>(run.experiment.spec.seed));
  }
  if (run.comm.rank() > 0 || !run.has_work()) return;
  run.description = describe_run(run.experiment, history_of(run, store, step));
  run.record = start_record(run, step ? store.folder(*step).filename().string() : "");
  run.kept_metrics_lines = cut_back_metrics(folder, reader ? &reader->manifest() : nullptr, run.console);
  if (run.has_steps()) std::filesystem::remove(folder.summary());
}

/// The batches of this process's slots.
TrainingBatches batches_of(const PreparedRun& run) {
  const ExperimentSpec& spec = run.experiment.spec;
  return {.geometry = batch_geometry(spec, run.steps.origin),
          .slots = run.experiment.exchanges.slot_map.slots_of(run.comm.rank()),
          .first_step = run.step,
          .last_step = run.steps.length.total_steps,
          .seed = static_cast<uint64_t>(spec.seed),
          .augment = {.steps = *spec.data.augment,
                      .mixup_alpha = spec.data.mixup_alpha,
                      .cutmix_alpha = spec.data.cutmix_alpha}};
}

void log_start(const PreparedRun& run) {
  RunConsole& console = run.console;
  console.info(describe_length(run.experiment, run.steps));
  for (const Dataset* data : {run.data.train.get(), run.data.test.get()})
    if (const std::string note = data->note(); !note.empty()) console.warn(note);
  if (const auto warning = slow_precision_warning(run.experiment.spec.train.precision, run.comm.device()))
    console.warn(*warning);
  if (run.train_source->is_resident())
    console.info("images are kept and augmented on the device (data.location)");
  const auto& [total_steps, warmup_steps, shift] = run.steps.length;
  if (warmup_steps >= static_cast<double>(total_steps) + shift)
    console.warn(fmt::format(
        "the warm-up of {:.4g} steps is as long as the run ({} steps): the peak learning rate is not reached",
        warmup_steps, total_steps));
}

}  // namespace

PreparedRun prepare_run(const Experiment& experiment, Communicator& comm, const SharedRunFolder& shared,
                        RunConsole& console, Resume resume) {
  const ExperimentSpec& spec = experiment.spec;
  const auto source_of = [&](const Dataset& data) {
    return std::make_unique<DeviceDataset>(data, spec.data, spec.train.precision, comm.device());
  };
  PreparedRun run{experiment, comm, shared, console};
  run.data = open_run_data(spec, comm, console.line());
  run.train_source = source_of(*run.data.train);
  run.test_source = source_of(*run.data.test);
  run.peak_flops_per_s = peak_flops_per_s(spec, comm);
  run.engines = std::make_unique<OwnedEngines>(experiment, comm);
  start(run, resume);
  if (run.has_steps()) run.loader = run.train_source->training(batches_of(run));
  if (comm.rank() == 0) log_start(run);
  return run;
}

}  // namespace sdp
