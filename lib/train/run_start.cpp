#include "train/run_start.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <tuple>

#include "checkpoint/resumed_run.h"
#include "experiment/spec/resume.h"
#include "telemetry/metrics.h"
#include "telemetry/progress.h"

namespace sdp {
namespace {

/// Step of the checkpoint to resume from, which rank 0 finds and verifies. Collective.
std::optional<int64_t> step_to_resume_from(Resume resume, const CheckpointStore& store, Communicator& comm,
                                           RunConsole& console) {
  check_same_everywhere(comm, "The checkpoint to start from (--resume)",
                        std::to_string(static_cast<int>(resume)));
  if (resume == Resume::kNo) return std::nullopt;
  std::string found;
  if (comm.rank() == 0) {
    Work work(console.line(), "verifying the checkpoint");
    std::optional<int64_t> step;
    if (resume == Resume::kLatestGood) {
      step = store.latest_good_step(
          /*verify_hashes=*/true,
          [&](const std::string& what) { console.warn("skipped the checkpoint " + what); },
          work.on_progress());
    } else {
      step = store.latest_step();
      if (step) store.read(*step, /*verify_hashes=*/true, work.on_progress());
    }
    if (step) found = std::to_string(*step);
  }
  comm.patient_barrier();
  found = comm.all_gather_strings(found).front();
  return found.empty() ? std::nullopt : std::optional<int64_t>(std::stoll(found));
}

/// Whether a resumed run has still to evaluate the step of its checkpoint, because it was stopped before.
/// Read from rank 0's metrics; collective.
bool owes_evaluation(const RunContext& run, const RunSteps& steps, int64_t step, Communicator& comm) {
  if (step == 0 || !evaluation_is_due(steps, step)) return false;
  const bool owes = comm.rank() == 0 && !find_evaluation(run.folder.metrics(), step);
  return !comm.all_gather_strings(owes ? "owes" : "").front().empty();
}

/// What a run that continues with other samples per step, or tokens per sample, has consumed.
void tell_position(const ExperimentSpec& saved, const ExperimentSpec& now, const RunSteps& steps,
                   RunConsole& console) {
  const bool is_resized = saved.data.sequence_length() != now.data.sequence_length();
  if (!is_resized && samples_per_step(saved) == samples_per_step(now)) return;
  const int64_t samples = steps.samples_after(steps.origin.step);
  console.tell(fmt::format(
      "a step has {} samples (was {}): the run goes on with the next unread one, after {} samples or {:.4g} "
      "epochs{}",
      samples_per_step(now), samples_per_step(saved), samples, steps.epochs_after(steps.origin.step),
      is_resized ? fmt::format(". Samples of {} tokens (were {}) have another order: of this epoch, some "
                               "tokens are read twice and some not at all",
                               now.data.sequence_length(), saved.data.sequence_length())
                 : ""));
}

void tell_resumed(const RunContext& run, const SavedDivision& saved, const RunSteps& saved_steps,
                  const RunSteps& steps, const Manifest& manifest, int processes, RunConsole& console) {
  if (manifest.step < steps.length.total_steps)
    console.tell(fmt::format("resuming at step {} of {}", manifest.step, steps.length.total_steps));
  if (manifest.step == 0) return;
  tell_position(saved.spec, run.experiment.spec, steps, console);
  const auto rate = [&](const ExperimentSpec& spec, const RunLength& length) {
    return fmt::format("{:.4g}", learning_rate(spec.schedule, spec.optimizer.lr(), length, manifest.step));
  };
  const std::string was = rate(saved.spec, saved_steps.length), is = rate(run.experiment.spec, steps.length);
  if (manifest.step < steps.length.total_steps && was != is)
    console.tell(fmt::format("the learning rate goes on with {}; as the run was before, with {}", is, was));
  if (!is_divided_as(saved, run.experiment)) {
    const SubnetPlan& plan = run.experiment.plan;
    const bool has_statistics = !plan.layout.buffers.empty();
    return console.tell(fmt::format(
        "the network is divided anew, among {} workers of coverage {}/{}, {} replicas: values and optimizer "
        "state are carried over{}",
        plan.workers, plan.owners_per_unit, plan.workers, run.experiment.spec.subnetwork.replicas,
        has_statistics ? ", BatchNorm statistics are averaged over owners" : ""));
  }
  if (manifest.processes != processes || manifest.threads != run.threads)
    console.warn(
        fmt::format("the checkpoint was made by {} processes with {} threads each, this run has {} with {}; "
                    "results agree up to rounding, not bit for bit",
                    manifest.processes, manifest.threads, processes, run.threads));
}

/// Continues the checkpoint's history or begins a new one. Warns of changes of the spec.
RunHistory history_of(const RunContext& run, const CheckpointStore& store, std::optional<int64_t> step,
                      RunConsole& console) {
  std::vector<SpecChange> changes;
  RunHistory history = new_history();
  if (step) {
    SavedRun saved = read_saved_run(store, *step);
    for (const std::string& warning : check_resumable(saved.spec, run.experiment.spec))
      console.warn(warning);
    changes = changes_between(saved.spec, run.experiment.spec);
    history = std::move(saved.history);
  }
  continue_history(history, step.value_or(0), changes, {run.data.train.samples, run.data.train.hash},
                   {run.data.test.samples, run.data.test.hash});
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

}  // namespace

RunStart start_run(const RunContext& run, Engine& engine, Communicator& comm, RunConsole& console,
                   Resume resume) {
  const CheckpointStore store(run.folder.dir);
  const std::optional<int64_t> step = step_to_resume_from(resume, store, comm, console);
  std::optional<CheckpointReader> reader;
  if (step) reader.emplace(run.folder.dir, step, /*verify_hashes=*/false);
  check_same_everywhere(comm, "The checkpoint to start from", reader ? reader->identity() : "none");
  RunStart start;
  const int64_t dataset_size = run.data.train.samples;
  if (reader) {
    const Manifest& manifest = reader->manifest();
    const ExperimentSpec& spec = run.experiment.spec;
    ExperimentSpec saved_spec = read_saved_run(store, *step).spec;
    saved_spec.model.complete_from(spec.model);
    const Experiment before = read_saved_experiment(store, *step, saved_spec);
    const SavedDivision saved{saved_spec, before.plan};
    for (const std::string& warning :
         check_data(manifest, run.data.train, run.data.test,
                    /*is_resized=*/saved_spec.data.sequence_length() != spec.data.sequence_length()))
      if (comm.rank() == 0) console.warn(warning);
    start = {.steps = run_steps(run.experiment, dataset_size,
                                origin_of_resumed(manifest, saved, run.experiment, dataset_size)),
             .step = manifest.step,
             .is_resumed = true,
             .skipped_steps = manifest.skipped_steps};
    // Without a change of the length, it has at most been rounded.
    const auto length_of = [](const TrainSpec& t) { return std::tuple(t.max_steps, t.epochs, t.budget); };
    if (start.step > start.steps.length.total_steps && length_of(saved_spec.train) != length_of(spec.train))
      throw UsageError(fmt::format(
          "--resume: the run is at step {}, after its new end, step {}. Set train.{} "
          "higher, or leave it out to keep the run's length.",
          start.step, start.steps.length.total_steps, spec.train.max_steps ? "max_steps" : "epochs"));
    restore(*reader, saved, run.experiment, engine);
    start.owes_evaluation = owes_evaluation(run, start.steps, manifest.step, comm);
    if (comm.rank() == 0)
      tell_resumed(run, saved, run_steps(before, manifest.training_data.samples, manifest.origin),
                   start.steps, manifest, comm.size(), console);
  } else {
    start.steps = run_steps(run.experiment, dataset_size);
    engine.initialize(static_cast<uint64_t>(run.experiment.spec.seed));
  }
  const bool has_steps = start.step < start.steps.length.total_steps;
  if (comm.rank() > 0 || (!has_steps && !start.owes_evaluation)) return start;
  start.history = history_of(run, store, step, console);
  if (step) start.checkpoint = store.folder(*step).filename().string();
  start.kept_metrics_lines = cut_back_metrics(run.folder, reader ? &reader->manifest() : nullptr, console);
  if (has_steps) std::filesystem::remove(run.folder.summary());
  return start;
}

}  // namespace sdp
