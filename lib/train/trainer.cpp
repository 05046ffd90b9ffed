#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>

#include "checkpoint/checkpointing.h"
#include "device/device.h"
#include "engine/checks.h"
#include "eval/evaluation.h"
#include "forecast/device_profile.h"
#include "telemetry/progress.h"
#include "telemetry/run_summary.h"
#include "telemetry/stopwatch.h"
#include "text/units.h"
#include "train/best.h"
#include "train/run_text.h"

namespace sdp {
namespace {

std::string text_of(const DataIdentity& identity) {
  return fmt::format("{} samples, hash {}", identity.samples, identity.hash);
}

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

RunDataIdentity identity_of(const RunData& data, Communicator& comm) {
  RunDataIdentity identity{.train = data.train->identity(), .test = data.test->identity()};
  check_same_everywhere(comm, "The training data", text_of(identity.train));
  check_same_everywhere(comm, "The test data", text_of(identity.test));
  return identity;
}

}  // namespace

Trainer::Trainer(const Experiment& experiment, Communicator& comm, const SharedRunFolder& run,
                 const Logger& log, Resume resume)
    : experiment_(experiment),
      comm_(comm),
      run_(run),
      folder_(run.folder),
      console_(log, comm.rank(), experiment.spec.train.log_every_steps),
      data_(open_run_data(experiment.spec, comm, console_.line())),
      data_identity_(identity_of(data_, comm)),
      measure_(measure_of(experiment.spec, data_identity_.test)),
      train_source_(*data_.train, experiment.spec.data, experiment.spec.train.precision, comm.device()),
      test_source_(*data_.test, experiment.spec.data, experiment.spec.train.precision, comm.device()),
      flops_per_sample_(mean_worker_flops(experiment.plan)),
      peak_flops_per_s_(peak_flops_per_s(experiment.spec, comm)),
      engine_(experiment.plan, experiment.schedule, experiment.spec.optimizer, comm),
      start_(start_run({experiment, folder_, data_identity_, threads()}, engine_, comm, console_, resume)),
      steps_(start_.steps),
      train_step_(experiment, engine_, comm, steps_.origin),
      feed_(has_steps() ? train_source_.training(batches_of_process()) : nullptr),
      interval_(engine_, train_step_, feed_.get(), comm.device()),
      profiler_(start_.step, experiment.spec.train.profile_steps, comm.device(),
                folder_.profile(comm.rank())),
      step_watch_(log, comm),
      saved_step_(start_.is_resumed ? std::optional(start_.step) : std::nullopt),
      skipped_steps_(start_.skipped_steps) {
  if (comm.rank() == 0) {
    description_ = describe_run(experiment, start_.history);
    tell_start();
  }
  if (!has_work()) return;
  if (comm.rank() == 0) {
    metrics_ = std::make_unique<RunMetrics>(folder_, start_.step, experiment.spec);
    if (experiment.spec.checkpoint.keep_best != KeepBest::kNone)
      best_ = best_evaluations(folder_.dir, /*with_checkpoint=*/true);
    if (!best_.empty() && !best_.contains(measure_))
      console_.tell(
          "evaluations now measure something else: the best is sought anew, and the one before stays");
    metrics_->append(start_record());
  }
  if (experiment.spec.output.trace) trace_.emplace(experiment, folder_, comm);
}

Trainer::~Trainer() = default;

template <class Record>
void Trainer::append(const Record& record) {
  check_lock();
  metrics_->append(record);
}

TrainingBatches Trainer::batches_of_process() const {
  const ExperimentSpec& spec = experiment_.spec;
  TrainingBatches batches{.geometry = batch_geometry(spec, steps_.origin),
                          .slots = {},
                          .first_step = start_.step,
                          .last_step = steps_.length.total_steps,
                          .seed = static_cast<uint64_t>(spec.seed),
                          .augment = {.steps = *spec.data.augment,
                                      .mixup_alpha = spec.data.mixup_alpha,
                                      .cutmix_alpha = spec.data.cutmix_alpha}};
  for (const Slot& slot : engine_.store().slots())
    batches.slots.push_back({slot.worker, slot.replica});
  return batches;
}

void Trainer::tell_start() {
  console_.tell(describe_length(experiment_, steps_));
  for (const Dataset* data : {data_.train.get(), data_.test.get()})
    if (const std::string note = data->note(); !note.empty()) console_.warn(note);
  if (const auto warning = slow_precision_warning(experiment_.spec.train.precision, comm_.device()))
    console_.warn(*warning);
  if (train_source_.is_resident())
    console_.tell("images are kept and augmented on the device (data.location)");
  if (steps_.length.warmup_steps >= static_cast<double>(steps_.length.total_steps) + steps_.length.shift)
    console_.warn(fmt::format(
        "the warm-up of {:.4g} steps is as long as the run ({} steps): the peak learning rate is not reached",
        steps_.length.warmup_steps, steps_.length.total_steps));
}

/// Rank 0 only; it holds the lock.
StartRecord Trainer::start_record() const {
  const RunOwner& owner = run_.lock->owner();
  StartRecord record{.step = start_.step,
                     .checkpoint = start_.checkpoint,
                     .data_s = data_.open_s,
                     .time = owner.since,
                     .version = kProgramVersion,
                     .job = owner.job,
                     .job_restarts = owner.job_restarts};
  for (const ProcessPlace& process : run_.processes) {
    record.hosts.push_back(process.host);
    record.threads.push_back(process.threads);
  }
  return record;
}

ExitCode Trainer::run() try {
  const int64_t total = steps_.length.total_steps;
  if (!has_work()) {
    if (comm_.rank() == 0)
      console_.tell(fmt::format("nothing to do: the checkpoint is at step {}, the run ends at step {}",
                                start_.step, total));
    if (start_.step == total) summarize();  // an earlier part of the run may have been killed before this
    return ExitCode::kOk;
  }
  if (experiment_.spec.checkpoint.at_start && start_.step == 0 && saved_step_ != 0) save(0);
  if (start_.owes_evaluation && !evaluate(start_.step)) return stop(start_.step);
  interval_.begin();
  set_notices();
  const Stopwatch first_step;
  if (comm_.rank() == 0) console_.begin_progress(start_.step);
  for (int64_t step = start_.step; step < total; ++step) {
    stop_if_lock_is_late();
    if (comm_.stops_here()) return stop(step);
    profiler_.before_step(step);
    step_watch_.begin(step + 1);
    train_step(step);
    profiler_.after_step(step);
    const int64_t done = step + 1;
    if (step == start_.step) show_first_step(first_step);
    bool saves = is_save_due(done);
    if (ends_interval(done)) saves = log_interval(done) || saves;
    step_watch_.end();
    const auto pause_began = std::chrono::steady_clock::now();
    if (is_due({.steps = static_cast<double>(experiment_.spec.train.audit_every.value_or(0))}, done))
      audit(done);
    // Save first: an evaluation may take long.
    if (saves) save(done);
    bool was_left = false;
    if (evaluation_is_due(steps_, done)) {
      if (!saves) check_state_is_finite(experiment_, engine_, comm_);
      was_left = !evaluate(done);
    }
    interval_.leave_out(std::chrono::steady_clock::now() - pause_began);
    if (was_left) return stop(done);
  }
  summarize();
  return ExitCode::kOk;
} catch (const Error& error) {
  throw Error(error.code(), fmt::format("{}\n{}", error.what(), text_of_last_checkpoint(saved_step_)));
}

bool Trainer::is_save_due(int64_t done) const {
  return done == steps_.length.total_steps || is_due(steps_.checkpoint_every, done);
}

bool Trainer::is_log_due(int64_t done) const {
  return is_due({.steps = static_cast<double>(experiment_.spec.train.log_every_steps)}, done);
}

/// A line of the metrics, which checks the losses, precedes every checkpoint.
bool Trainer::ends_interval(int64_t done) const {
  return is_save_due(done) || is_log_due(done);
}

double Trainer::lr_of(int64_t step) const {
  return learning_rate(experiment_.spec.schedule, experiment_.spec.optimizer.lr(), steps_.length, step);
}

void Trainer::train_step(int64_t step) {
  std::vector<int64_t> samples;
  const auto next_batch = [&] {
    const PhaseScope phase(comm_, "reading data");
    TensorBatch batch = feed_->next();
    for (const std::string& message : batch.skipped)
      console_.report_skipped(message);
    interval_.add_skipped_samples(static_cast<int64_t>(batch.skipped.size()));
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    return batch;
  };
  const StepResult result = train_step_.run(step, lr_of(step), next_batch, ends_interval(step + 1));
  if (trace_) trace_->append(step, result.losses, samples);
  if (result.nonfinite) return skip_step(step, *result.nonfinite);
  consecutive_skips_ = 0;
  interval_.add(step, result);
}

/// An interval of the metrics may be long: the first step tells how long the run will take.
void Trainer::show_first_step(const Stopwatch& stopwatch) {
  const int64_t done = start_.step + 1;
  if (comm_.rank() > 0 || is_log_due(done)) return;
  synchronize(comm_.device());
  console_.show({.step = done,
                 .total_steps = steps_.length.total_steps,
                 .epoch = steps_.epochs_after(done),
                 .total_epochs = steps_.epochs,
                 .samples_per_s = static_cast<double>(steps_.samples_per_step) / stopwatch.seconds()});
}

void Trainer::skip_step(int64_t step, const NonfiniteStep& found) {
  interval_.add_skipped_step();
  ++skipped_steps_;
  ++consecutive_skips_;
  const NonfiniteRecord record = nonfinite_record(experiment_, steps_, step, found, /*skipped=*/true);
  if (metrics_) {
    append(record);
    console_.warn(text_of(record) + "; the step is skipped");
  }
  const int64_t most = experiment_.spec.train.max_consecutive_skips;
  if (consecutive_skips_ > most)
    throw Error(ExitCode::kInternal,
                fmt::format("{}, the {}th step in a row; train.max_consecutive_skips is {}. {}",
                            text_of(record), consecutive_skips_, most, kNonfiniteRemedies));
}

/// Every process has the same losses, so all of them throw. Nothing is saved: the last checkpoint stays
/// valid.
void Trainer::stop_because_not_finite(int64_t step, const NonfiniteStep& found) {
  const NonfiniteRecord record = nonfinite_record(experiment_, steps_, step, found, /*skipped=*/false);
  if (metrics_) append(record);
  throw Error(ExitCode::kInternal,
              fmt::format("{}. {} train.on_nonfinite: skip leaves out such steps and continues.",
                          text_of(record), kNonfiniteRemedies));
}

void Trainer::audit(int64_t done) {
  engine_.await_all_values();
  const std::vector<DifferentCopies> found = find_different_copies(engine_.store(), comm_);
  if (found.empty()) return;
  throw Error(
      ExitCode::kInternal,
      fmt::format("after step {}, {}. A copy was changed outside of training, as by faulty memory: test the "
                  "host of the rank that differs.",
                  done, describe(found, experiment_.plan)));
}

bool Trainer::log_interval(int64_t done) {
  // Data sent by the interval's steps counts toward the interval.
  engine_.await_all_values();
  ProcessReport mine = interval_.report();
  mine.save_is_due = is_due_by_time(experiment_.spec.checkpoint, since_save_.seconds()) ? 1 : 0;
  const GatheredReports gathered = gather(comm_, mine, interval_.losses());
  const Interval::Losses losses = interval_.combine(gathered.losses);
  if (losses.first_nonfinite_step >= 0)
    stop_because_not_finite(losses.first_nonfinite_step, losses.nonfinite);
  if (metrics_) {
    const TrainRecord record = record_of(done, losses.mean, gathered.processes);
    append(record);
    most_tensor_bytes_ = std::max(most_tensor_bytes_, record.processes.peak_tensor_memory_bytes);
    console_.show({.step = record.step,
                   .total_steps = steps_.length.total_steps,
                   .epoch = record.epoch,
                   .total_epochs = steps_.epochs,
                   .loss = record.loss,
                   .lr = record.lr,
                   .gradient_norm = record.gradient_norm,
                   .samples_per_s = record.samples_per_s,
                   .tokens_per_s = record.tokens_per_s,
                   .tokens = record.tokens,
                   .utilization = record.utilization,
                   .seconds_left = std::nullopt,
                   .process_memory_bytes = record.processes.peak_process_memory_bytes,
                   .tensor_memory_bytes = record.processes.peak_tensor_memory_bytes});
    // The first interval waits for the first batch.
    if (done - start_.step > interval_.steps()) warn_of_slow_data(record);
  }
  interval_.begin();
  return gathered.processes.front().save_is_due != 0;
}

TrainRecord Trainer::record_of(int64_t done, double loss, const std::vector<ProcessReport>& processes) const {
  const double seconds = interval_.seconds();
  const double samples_per_s = static_cast<double>(interval_.steps() * steps_.samples_per_step) / seconds;
  TrainRecord record{.step = done,
                     .epoch = steps_.epochs_after(done),
                     .loss = loss,
                     .lr = lr_of(done - 1),
                     .gradient_norm = interval_.gradient_norm(),
                     .samples_per_s = samples_per_s,
                     .flops_per_s = samples_per_s * flops_per_sample_,
                     .step_ms = seconds * 1e3 / static_cast<double>(interval_.steps())};
  if (experiment_.spec.data.is_of_tokens()) {
    const int64_t tokens_per_sample = experiment_.spec.data.sequence_length();
    record.tokens_per_s = samples_per_s * static_cast<double>(tokens_per_sample);
    record.tokens = steps_.samples_after(done) * tokens_per_sample;
  }
  if (peak_flops_per_s_) record.utilization = record.flops_per_s / *peak_flops_per_s_;
  add_reports(record, processes);
  return record;
}

void Trainer::warn_of_slow_data(const TrainRecord& record) {
  const std::optional<std::string> warning =
      slow_data_warning(record.step_ms, record.processes.data_wait_ms, experiment_.spec.data);
  if (warned_of_slow_data_ || !warning) return;
  warned_of_slow_data_ = true;
  console_.warn(*warning);
}

bool Trainer::evaluate(int64_t done) {
  const PhaseScope phase(comm_, "evaluation");
  interval_.pause_memory();
  const bool is_complete = evaluate_models(done);
  const std::string mine = std::to_string(interval_.resume_memory());
  if (!is_complete) return false;
  for (const std::string& bytes : comm_.all_gather_strings(mine))
    most_eval_bytes_ = std::max<int64_t>(most_eval_bytes_, std::stoll(bytes));
  return true;
}

bool Trainer::evaluate_models(int64_t done) try {
  const bool final = done == steps_.length.total_steps;
  if (final) console_.finish_progress();
  engine_.await_all_values();
  const auto on_skipped = [this](const std::string& message) { console_.report_skipped(message); };
  const std::filesystem::path checkpoint =
      saved_step_ == done ? CheckpointStore(folder_.dir).folder(done) : std::filesystem::path();
  LiveFullModel full_model(experiment_.plan, experiment_.schedule, engine_, comm_);
  EvaluatedModels models{.full = full_model};
  if (engine_.has_average())
    models.make_average = [this] {
      return std::make_unique<LiveFullModel>(experiment_.plan, experiment_.schedule, engine_, comm_,
                                             ModelValues::kAverage);
    };
  if (final) add_subnetworks(models);
  EvalRecord record = sdp::evaluate(
      {experiment_, train_source_, test_source_, comm_, console_.line(), on_skipped, checkpoint}, models);
  record.step = done;
  record.measure = measure_;
  if (metrics_) {
    append(record);
    console_.tell(describe(record));
  }
  if (is_best(record) && saved_step_ != done) save(done);
  return true;
} catch (const EvaluationStopped&) {
  return false;
}

/// Whether the evaluation is the best so far and its checkpoint is to be kept. Decided by rank 0; collective.
bool Trainer::is_best(const EvalRecord& record) {
  const KeepBest by = experiment_.spec.checkpoint.keep_best;
  if (by == KeepBest::kNone) return false;
  const auto best = best_.find(measure_);
  const bool is_best = comm_.rank() == 0 && (best == best_.end() || is_better(record, best->second, by));
  if (is_best) best_[measure_] = record;
  return !comm_.all_gather_strings(is_best ? "best" : "").front().empty();
}

/// Every worker's subnetwork (replica 0), on the process that runs it.
void Trainer::add_subnetworks(EvaluatedModels& models) {
  std::vector<Model*> subnetworks;
  for (size_t s = 0; s < engine_.store().slots().size(); ++s) {
    const Slot slot = engine_.store().slots()[s];
    if (slot.replica > 0) continue;
    models.workers.push_back(slot.worker);
    subnetworks.push_back(train_step_.models()[s].get());
  }
  models.subnetwork = [subnetworks](size_t i) -> Model& { return *subnetworks[i]; };
}

void Trainer::check_lock() const {
  if (run_.lock) run_.lock->check();
}

/// Another host must not find the lock silent while this run trains. Stops as after a signal.
void Trainer::stop_if_lock_is_late() {
  if (!run_.lock || !run_.lock->is_late() || std::exchange(told_of_late_lock_, true)) return;
  console_.warn(fmt::format(
      "the heartbeat in {} cannot be written; this run stops, as another host may soon take it over",
      folder_.lock().string()));
  std::raise(SIGTERM);
}

void Trainer::save(int64_t done) {
  check_lock();
  const PhaseScope phase(comm_, "saving a checkpoint");
  const Stopwatch stopwatch;
  Work work(console_.line(), "saving a checkpoint");
  RunProgress progress{.step = done,
                       .skipped_steps = skipped_steps_,
                       .origin = steps_.origin,
                       .metrics_lines = metrics_ ? start_.kept_metrics_lines + metrics_->appended_lines() : 0,
                       .training_data = data_identity_.train,
                       .test_data = data_identity_.test};
  for (const auto& [measure, best] : best_)
    progress.best_steps.insert(best.step);
  const SavedCheckpoint saved = save_checkpoint(folder_.dir, experiment_, engine_, comm_, progress,
                                                description_, threads(), work.on_progress());
  saved_step_ = done;
  set_notices();
  if (metrics_) append(CheckpointRecord{.step = done, .save_s = stopwatch.seconds(), .bytes = saved.bytes});
  for (const std::string& message : saved.left)
    console_.warn("could not remove an old checkpoint: " + message);
  since_save_ = Stopwatch();
}

void Trainer::set_notices() {
  comm_.set_last_words(text_of_last_checkpoint(saved_step_));
  comm_.set_stop_notice(
      fmt::format("stopping after this step; a second signal stops at once and loses the steps since step {}",
                  saved_step_.value_or(0)));
}

/// All processes have done the same number of steps.
ExitCode Trainer::stop(int64_t done) {
  if (interval_.steps() > 0) log_interval(done);
  if (saved_step_ != done) save(done);
  console_.finish_progress();
  if (comm_.rank() == 0)
    console_.tell(fmt::format("stopped after step {}; --resume continues from there", done));
  return ExitCode::kPreempted;
}

/// Writes the summary, which marks the run as finished. An existing summary is kept.
void Trainer::summarize() {
  if (comm_.rank() > 0 || std::filesystem::exists(folder_.summary())) return;
  check_lock();
  const std::optional<EvalRecord> last = find_evaluation(folder_.metrics(), steps_.length.total_steps);
  const RunTimes times = times_of_run(folder_.metrics());
  write_summary(
      folder_.summary(),
      {.step = std::max(start_.step, steps_.length.total_steps),
       .total_steps = steps_.length.total_steps,
       .samples_per_step = steps_.samples_per_step,
       .epochs = steps_.epochs,
       .processes = comm_.size(),
       .threads_per_process = threads(),
       .device = device_name(comm_.device()),
       .version = kProgramVersion,
       .skipped_steps = skipped_steps_,
       .loss = last ? std::optional(last->loss) : std::nullopt,
       .accuracy = last ? std::optional(last->accuracy) : std::nullopt,
       .perplexity = last && last->is_of_tokens() ? std::optional(last->perplexity()) : std::nullopt,
       .times = times});
  if (!last) return;
  const EvalRecord best = best_evaluations(folder_.dir, false).at(last->measure.value_or(""));
  console_.tell(describe_end(*last, best, times, most_tensor_bytes_, most_eval_bytes_));
}

}  // namespace sdp
