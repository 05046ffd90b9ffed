#include "train/trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "checkpoint/resumed_run.h"
#include "device/device.h"
#include "experiment/spec/resume.h"
#include "forecast/device_profile.h"
#include "telemetry/stopwatch.h"
#include "telemetry/work.h"
#include "train/run_text.h"

namespace sdp {
namespace {

std::string text_of(const DataIdentity& identity) {
  return fmt::format("{} samples, hash {}", identity.samples, identity.hash);
}

/// Of a process's device. With Gloo several processes may share a GPU, of which each has less than the data
/// sheet says.
std::optional<double> peak_flops_per_s(const ExperimentSpec& spec, const Communicator& comm) {
  const bool has_own_device = comm.size() == 1 || comm.is_stream_ordered();
  if (!has_own_device) return std::nullopt;
  return data_sheet_flops_per_s(gpu_name(comm.device()), spec.train.precision);
}

}  // namespace

Trainer::Trainer(const Experiment& experiment, Communicator& comm, const SharedRunFolder& run, Logger log,
                 Resume resume)
    : experiment_(experiment),
      comm_(comm),
      run_(run),
      folder_(run.folder),
      log_(std::move(log)),
      threads_(run.processes.at(static_cast<size_t>(comm.rank())).threads),
      line_(comm.rank() == 0 ? STDOUT_FILENO : -1),
      progress_(line_, experiment.spec.train.log_every_steps),
      data_(open_run_data(experiment.spec, comm, line_)),
      peak_flops_per_s_(peak_flops_per_s(experiment.spec, comm)),
      train_source_(*data_.train, experiment.spec.data, experiment.spec.train.precision, comm.device()),
      test_source_(*data_.test, experiment.spec.data, experiment.spec.train.precision, comm.device()),
      training_data_(data_.train->identity()),
      test_data_(data_.test->identity()),
      steps_(run_steps(experiment, data_.train->size())),
      save_timer_(experiment.spec.checkpoint.every_minutes, SaveTimer::Clock::now()),
      engine_(experiment.plan, experiment.schedule, experiment.spec.optimizer, comm) {
  check_same_everywhere(comm, "The training data", text_of(training_data_));
  check_same_everywhere(comm, "The test data", text_of(test_data_));
  start_fresh_or_resume(resume);
  train_step_ = std::make_unique<TrainStep>(experiment, engine_, comm);
  if (has_steps()) feed_ = train_source_.training(batches_of_process());
  if (comm.rank() == 0) {
    description_ = describe_run(experiment, history_);
    log_.info(describe_length(experiment, steps_));
    for (const Dataset* data : {data_.train.get(), data_.test.get()})
      if (const std::string note = data->note(); !note.empty()) log_.warn(note);
    if (train_source_.is_resident()) log_.info("images are kept and augmented on the device (data.location)");
    if (steps_.length.warmup_steps >= steps_.length.total_steps)
      log_.warn(fmt::format(
          "the warm-up of {} steps is as long as the run of {}: the peak learning rate is not reached",
          steps_.length.warmup_steps, steps_.length.total_steps));
    if (!has_work()) return;
    metrics_ = std::make_unique<RunMetrics>(folder_, first_step_);
    metrics_->append(start_record());
    if (experiment.spec.output.trace) trace_ = std::make_unique<JsonLines>(folder_.trace());
  }
}

Trainer::~Trainer() = default;

/// As rank 0 finds it, which verifies the checkpoint. Collective.
std::optional<int64_t> Trainer::step_to_resume_from(Resume resume) {
  check_same_everywhere(comm_, "The checkpoint to start from (--resume)",
                        std::to_string(static_cast<int>(resume)));
  if (resume == Resume::kNo) return std::nullopt;
  const CheckpointStore store(folder_.dir);
  std::string found;
  if (comm_.rank() == 0) {
    Work work(line_, "verifying the checkpoint");
    std::optional<int64_t> step;
    if (resume == Resume::kLatestGood) {
      step = store.latest_good_step(
          /*verify_hashes=*/true, [&](const std::string& what) { warn("passed over " + what); },
          work.on_progress());
    } else {
      step = store.latest_step();
      if (step) store.read(*step, /*verify_hashes=*/true, work.on_progress());
    }
    if (step) found = std::to_string(*step);
  }
  found = comm_.all_gather_strings(found).front();
  return found.empty() ? std::nullopt : std::optional<int64_t>(std::stoll(found));
}

void Trainer::start_fresh_or_resume(Resume resume) {
  const std::optional<int64_t> step = step_to_resume_from(resume);
  std::optional<CheckpointReader> reader;
  if (step) reader.emplace(folder_.dir, step, /*verify_hashes=*/false);
  check_same_everywhere(comm_, "The checkpoint to start from", reader ? reader->identity() : "none");
  if (reader) {
    for (const std::string& warning : check_data(reader->manifest(), training_data_, test_data_))
      if (comm_.rank() == 0) log_.warn(warning);
    restore(*reader, experiment_, engine_);
    first_step_ = saved_step_ = reader->manifest().step;
    skipped_steps_ = reader->manifest().skipped_steps;
    imported_batch_norm_updates_ = reader->manifest().imported_batch_norm_updates;
    if (comm_.rank() == 0) {
      if (has_steps())
        log_.info(fmt::format("resuming at step {} of {}", first_step_, steps_.length.total_steps));
      const Manifest& manifest = reader->manifest();
      const bool differs = manifest.processes != comm_.size() || manifest.threads != threads_;
      if (first_step_ > 0 && differs)
        log_.warn(
            fmt::format("the checkpoint was made by {} processes of {} threads, this run has {} of {}: "
                        "results agree up to rounding, not bit for bit",
                        manifest.processes, manifest.threads, comm_.size(), threads_));
    }
  } else {
    engine_.initialize(static_cast<uint64_t>(experiment_.spec.seed));
  }
  owes_evaluation_ = reader && owes_evaluation();
  if (comm_.rank() == 0 && has_work()) {
    take_history(step);
    cut_back_metrics(reader ? &reader->manifest() : nullptr);
    if (has_steps()) std::filesystem::remove(folder_.summary());
  }
}

/// Continues the history of the checkpoint, or begins one, and tells what of the spec has changed.
void Trainer::take_history(std::optional<int64_t> step) {
  std::vector<SpecChange> changes;
  history_ = new_history();
  if (step) {
    const CheckpointStore store(folder_.dir);
    SavedRun saved = read_saved_run(store, *step);
    for (const std::string& warning : check_resumable(saved.spec, experiment_.spec))
      log_.warn(warning);
    changes = changes_between(saved.spec, experiment_.spec);
    history_ = std::move(saved.history);
    checkpoint_ = store.folder(*step).filename().string();
  }
  continue_history(history_, first_step_, changes, {training_data_.samples, training_data_.hash},
                   {test_data_.samples, test_data_.hash});
}

bool Trainer::evaluation_is_due(int64_t done) const {
  return done == steps_.length.total_steps || is_due(steps_.eval_every_steps, done);
}

bool Trainer::owes_evaluation() {
  if (first_step_ == 0 || !evaluation_is_due(first_step_)) return false;
  const bool owes = comm_.rank() == 0 && !find_evaluation(folder_.metrics(), first_step_);
  return !comm_.all_gather_strings(owes ? "owes" : "").front().empty();
}

/// What was recorded after the checkpoint goes; what should be there and is not is told.
void Trainer::cut_back_metrics(const Manifest* saved) {
  const int64_t last_step = saved ? saved->step : -1;
  kept_metrics_lines_ = cut_back(folder_.metrics(), last_step);
  cut_back(folder_.trace(), last_step);
  if (saved && kept_metrics_lines_ < saved->metrics_lines)
    log_.warn(
        fmt::format("{} has {} lines up to step {}, but had {} when that checkpoint was saved: reports and "
                    "the summary's times lack what they said",
                    folder_.metrics().string(), kept_metrics_lines_, saved->step, saved->metrics_lines));
}

at::Tensor Trainer::fp64_zeros(size_t size) const {
  return at::zeros({static_cast<int64_t>(size)}, at::TensorOptions(at::kDouble).device(comm_.device()));
}

TrainingBatches Trainer::batches_of_process() const {
  const ExperimentSpec& spec = experiment_.spec;
  TrainingBatches batches{.geometry = batch_geometry(spec),
                          .slots = {},
                          .first_step = first_step_,
                          .last_step = steps_.length.total_steps,
                          .seed = static_cast<uint64_t>(spec.seed),
                          .augment = {.steps = *spec.data.augment,
                                      .mixup_alpha = spec.data.mixup_alpha,
                                      .cutmix_alpha = spec.data.cutmix_alpha}};
  for (const Slot& slot : engine_.store().slots())
    batches.slots.push_back({slot.worker, slot.replica});
  return batches;
}

TensorBatch Trainer::next_batch() {
  TensorBatch batch = feed_->next();
  for (const std::string& message : batch.skipped)
    report_skipped(message);
  interval_.skipped += static_cast<int64_t>(batch.skipped.size());
  return batch;
}

void Trainer::report_skipped(const std::string& message) {
  if (!reported_.insert(message).second) return;
  warn(fmt::format("skipped: {}", message));
}

double Trainer::lr_of(int64_t step) const {
  return learning_rate(experiment_.spec.schedule, experiment_.spec.optimizer.lr, steps_.length, step);
}

void Trainer::train_step(int64_t step) {
  std::vector<int64_t> samples;
  const StepResult result = train_step_->run(step, lr_of(step), [&] {
    TensorBatch batch = next_batch();
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    return batch;
  });
  interval_.steps += 1;
  if (experiment_.spec.output.trace) trace_step(step, result.losses, samples);
  if (result.nonfinite) return skip_step(step, *result.nonfinite);
  consecutive_skips_ = 0;
  interval_.losses += result.losses;
  interval_.correct += result.correct;
  interval_.counted += result.counted;
  // Looked at by log_interval, as the host does not wait for the device here.
  const at::Tensor& first = interval_.first_nonfinite;
  interval_.first_nonfinite =
      at::where(at::isfinite(result.losses).logical_or(first.ge(0)), first, static_cast<double>(step));
}

bool Trainer::evaluate(int64_t done) try {
  const PhaseScope phase(comm_, "evaluation");
  const bool final = done == steps_.length.total_steps;
  if (final) progress_.finish();
  engine_.await_all_values();
  Evaluator evaluator(experiment_, train_source_, test_source_, comm_, line_,
                      [this](const std::string& message) { report_skipped(message); });
  LiveFullModel full_model(experiment_.plan, experiment_.schedule, engine_, comm_);
  EvalRecord record = evaluator.evaluate(full_model);
  record.step = done;
  if (final) evaluate_subnetworks(evaluator, record);
  if (metrics_) {
    metrics_->append(record);
    tell(describe(record));
  }
  return true;
} catch (const EvaluationStopped&) {
  return false;
}

/// Every worker's own subnetwork (replica 0), by the process that runs it.
void Trainer::evaluate_subnetworks(Evaluator& evaluator, EvalRecord& record) {
  std::vector<int> workers;
  std::vector<Model*> models;
  for (size_t s = 0; s < engine_.store().slots().size(); ++s) {
    const Slot slot = engine_.store().slots()[s];
    if (slot.replica > 0) continue;
    workers.push_back(slot.worker);
    models.push_back(train_step_->models()[s].get());
  }
  evaluator.add_subnetworks(record, workers, [&](size_t i) -> Model& { return *models[i]; });
}

void Trainer::save(int64_t done) {
  check_lock();
  const PhaseScope phase(comm_, "saving a checkpoint");
  const Stopwatch stopwatch;
  Work work(line_, "saving a checkpoint");
  const RunProgress progress{.step = done,
                             .skipped_steps = skipped_steps_,
                             .imported_batch_norm_updates = imported_batch_norm_updates_,
                             .metrics_lines = metrics_ ? kept_metrics_lines_ + metrics_->appended_lines() : 0,
                             .training_data = training_data_,
                             .test_data = test_data_};
  const SavedCheckpoint saved = save_checkpoint(folder_.dir, experiment_, engine_, comm_, progress,
                                                description_, threads_, work.on_progress());
  saved_step_ = done;
  if (metrics_)
    metrics_->append(CheckpointRecord{.step = done, .save_s = stopwatch.seconds(), .bytes = saved.bytes});
  for (const std::string& message : saved.left)
    warn("an old checkpoint stays for now: " + message);
  save_timer_.restart(SaveTimer::Clock::now());
}

/// All processes have done as many steps.
ExitCode Trainer::stop(int64_t done) {
  if (interval_.steps > 0) log_interval(done);
  if (saved_step_ != done) save(done);
  progress_.finish();
  if (comm_.rank() == 0)
    tell(fmt::format("stopped by a signal after step {}; --resume continues from there", done));
  return ExitCode::kPreempted;
}

ExitCode Trainer::run() {
  const int64_t total = steps_.length.total_steps;
  if (!has_work()) {
    if (comm_.rank() == 0)
      log_.info(fmt::format("nothing to do: the checkpoint is at step {}, the run ends at step {}",
                            first_step_, total));
    if (first_step_ == total) summarize();  // which a part that was killed had no time for
    return ExitCode::kOk;
  }
  if (experiment_.spec.checkpoint.at_start && first_step_ == 0 && saved_step_ != 0) save(0);
  profiler_ = std::make_unique<StepProfiler>(first_step_, experiment_.spec.train.profile_steps,
                                             comm_.device(), folder_.profile(comm_.rank()));
  begin_interval();
  if (owes_evaluation_ && !evaluate(first_step_)) return stop(first_step_);
  for (int64_t step = first_step_; step < total; ++step) {
    if (comm_.stops_here()) return stop(step);
    profiler_->before_step(step);
    train_step(step);
    profiler_->after_step(step);
    const int64_t done = step + 1;
    const bool last = done == total;
    bool saves = last || is_due(steps_.checkpoint_every_steps, done);
    // A checkpoint always follows a line of the metrics, and so a look at the losses.
    if (saves || is_due(static_cast<double>(experiment_.spec.train.log_every_steps), done))
      saves = log_interval(done) || saves;
    const auto pause_began = std::chrono::steady_clock::now();
    // Saved first, as an evaluation may take long.
    if (saves) save(done);
    if (evaluation_is_due(done)) {
      if (!saves) check_state_is_finite(folder_.dir, experiment_, engine_, comm_);
      if (!evaluate(done)) return stop(done);
    }
    // Evaluation and saving do not count as training time.
    interval_.began += std::chrono::steady_clock::now() - pause_began;
  }
  summarize();
  return ExitCode::kOk;
}

}  // namespace sdp
