#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <utility>

#include "engine/checks.h"
#include "engine/device.h"
#include "engine/full_model.h"
#include "engine/train_step.h"
#include "eval/best.h"
#include "eval/evaluation.h"
#include "process/stopwatch.h"
#include "run/checkpoint_store.h"
#include "run/logging_interval.h"
#include "run/run_metrics.h"
#include "run/run_summary.h"
#include "run/run_text.h"
#include "run/save_checkpoint.h"
#include "train/prepare_run.h"

namespace sdp {
namespace {

class Trainer {
 public:
  /// `run` must outlive it.
  Trainer(const PreparedRun& run, const Logger& log);

  ExitCode run();

 private:
  int threads() const { return run_.shared.threads(comm_.rank()); }
  void begin_metrics();

  void train_step(int64_t step, bool is_logged);
  void show_first_step(const Stopwatch& stopwatch);
  void count_local_skips(const StepResult& result);
  void handle_nonfinite(int64_t step, const NonfiniteStep& found, bool is_skipped);

  /// Throws if copies of values differ between processes. Collective.
  void audit(int64_t done);
  /// Writes the interval's line of the metrics. Returns whether checkpoint.every_minutes have passed, the
  /// same on all processes. Collective.
  bool log_interval(int64_t done);

  /// Returns whether the evaluation finished; false if all processes left it because one was asked to stop.
  bool evaluate(int64_t done);
  void add_subnetworks(EvaluatedModels& models);
  void save(int64_t done);
  void set_notices();
  ExitCode stop(int64_t done);
  bool is_best(const EvalRecord& record);
  void summarize();
  /// Writes a line of the metrics. Rank 0 only.
  template <class Record>
  void append(const Record& record) {
    run_.shared.check_lock();
    metrics_->append(record);
  }
  void stop_if_lock_is_late();

  const PreparedRun& run_;
  const Experiment& experiment_ = run_.experiment;
  Communicator& comm_ = run_.comm;
  const RunFolder& folder_ = run_.shared.folder;
  RunConsole& console_ = run_.console;
  const Engines engines_ = run_.engines->engines();
  const RunSteps& steps_ = run_.steps;
  /// Of evaluations (eval/best.h).
  const std::string measure_ = measure_of(experiment_.spec, run_.data.test_identity);
  Stopwatch since_save_;  ///< or since the run began; rank 0's decides
  TrainStep train_step_{experiment_, engines_, comm_, steps_.origin};
  LoggingInterval logging_interval_{experiment_, steps_, engines_, train_step_, run_.loader.get()};
  StepProfiler profiler_;
  StepWatch step_watch_;                 ///< shown by rank 0
  std::unique_ptr<RunMetrics> metrics_;  ///< rank 0 only, if there is work to do
  std::optional<StepTrace> trace_;       ///< with output.trace
  /// Step of the newest checkpoint; unset: none.
  std::optional<int64_t> saved_step_ = run_.is_resumed ? std::optional(run_.step) : std::nullopt;
  int64_t skipped_steps_ = run_.skipped_steps;  ///< over all parts of the run
  std::map<std::string, EvalRecord> best_;      ///< rank 0, with checkpoint.keep_best: so far, by measure
  int64_t most_tensor_bytes_ = 0;               ///< rank 0: largest peak of a process in a logging interval
  int64_t most_eval_bytes_ = 0;                 ///< the same of evaluations, on every rank
  int64_t consecutive_skips_ = 0;
  std::map<int, int64_t> local_skips_;  ///< in a row, by worker, with local steps
  bool warned_of_slow_data_ = false;
  bool told_of_late_lock_ = false;
};

Trainer::Trainer(const PreparedRun& run, const Logger& log)
    : run_(run),
      profiler_(run.step, experiment_.spec.train.profile_steps, comm_.device(),
                folder_.profile(comm_.rank())),
      step_watch_(log, comm_) {
  if (!run.has_work()) return;
  if (comm_.rank() == 0) begin_metrics();
  if (experiment_.spec.output.trace) trace_.emplace(experiment_, folder_, comm_);
}

void Trainer::begin_metrics() {
  metrics_ = std::make_unique<RunMetrics>(folder_, run_.step, experiment_.spec);
  if (experiment_.spec.checkpoint.keep_best != KeepBest::kNone)
    best_ = best_evaluations(folder_.dir, /*with_checkpoint=*/true);
  if (!best_.empty() && !best_.contains(measure_))
    console_.info(
        "evaluations now measure something else: the best is sought anew, and the one before stays");
  metrics_->append(run_.record);
}

ExitCode Trainer::run() try {
  const int64_t total = steps_.length.total_steps;
  if (!run_.has_work()) {
    if (comm_.rank() == 0)
      console_.info(fmt::format("nothing to do: the checkpoint is at step {}, the run ends at step {}",
                                run_.step, total));
    if (run_.step == total) summarize();  // an earlier part of the run may have been killed before this
    return ExitCode::kOk;
  }
  if (experiment_.spec.checkpoint.at_start && run_.step == 0 && saved_step_ != 0) save(0);
  if (run_.owes_evaluation && !evaluate(run_.step)) return stop(run_.step);
  logging_interval_.begin();
  set_notices();
  const Stopwatch first_step;
  if (comm_.rank() == 0) console_.begin_progress(run_.step);
  for (int64_t step = run_.step; step < total; ++step) {
    stop_if_lock_is_late();
    if (comm_.stops_here()) return stop(step);
    const int64_t done = step + 1;
    StepDecision decision = decide(experiment_.spec, steps_, done);
    profiler_.before_step(step);
    step_watch_.begin(done);
    train_step(step, decision.logs);
    if (decision.exchanges) engines_.outer()->run();
    profiler_.after_step(step);
    if (step == run_.step && !decision.logs) show_first_step(first_step);
    if (decision.logs) decision.saves |= log_interval(done);
    step_watch_.end();
    const auto pause_began = std::chrono::steady_clock::now();
    if (decision.audits) audit(done);
    // Save first: an evaluation may take long.
    if (decision.saves)
      save(done);
    else if (decision.evaluates)
      check_state_is_finite(experiment_, engines_, comm_);
    const bool was_left = decision.evaluates && !evaluate(done);
    logging_interval_.leave_out(std::chrono::steady_clock::now() - pause_began);
    if (was_left) return stop(done);
  }
  summarize();
  return ExitCode::kOk;
} catch (const Error& error) {
  throw Error(error.code(), fmt::format("{}\n{}", error.what(), text_of_last_checkpoint(saved_step_)));
}

void Trainer::train_step(int64_t step, bool is_logged) {
  std::vector<int64_t> samples;
  const auto next_batch = [&] {
    const PhaseScope phase(comm_, "reading data");
    TensorBatch batch = run_.loader->next();
    for (const std::string& message : batch.skipped)
      console_.report_skipped(message);
    logging_interval_.add_skipped_samples(static_cast<int64_t>(batch.skipped.size()));
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    return batch;
  };
  const ExperimentSpec& spec = experiment_.spec;
  const double lr = learning_rate(spec.schedule, spec.optimizer.lr(), steps_.length, step);
  const StepResult result = [&] {
    try {
      return train_step_.run(step, lr, next_batch, /*measures_gradient_norm=*/is_logged);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInternal) throw;  // an exception in a network in Python
      throw Error(error.code(), fmt::format("rank {}, step {}: {}", comm_.rank(), step + 1, error.what()));
    }
  }();
  if (trace_) trace_->append(step, result.losses, samples);
  if (result.nonfinite) return handle_nonfinite(step, *result.nonfinite, /*is_skipped=*/true);
  consecutive_skips_ = 0;
  count_local_skips(result);
  logging_interval_.add(step, result);
}

/// With local steps a worker that diverges ends the run as all workers do without.
void Trainer::count_local_skips(const StepResult& result) {
  std::map<int, int64_t> skips;  // in a row, by worker
  for (const int worker : result.skipped_workers)
    skips[worker] = local_skips_[worker] + 1;
  local_skips_ = std::move(skips);
  const int64_t most = experiment_.spec.train.max_consecutive_skips;
  for (const auto& [worker, steps] : local_skips_)
    if (steps > most)
      throw Error(
          ExitCode::kInternal,
          fmt::format("worker {} has skipped {} steps in a row, whose loss or gradient was not finite; "
                      "train.max_consecutive_skips is {}. {}",
                      worker, steps, most, kNonfiniteRemedies));
}

/// An interval of the metrics may be long: the first step tells how long the run will take.
void Trainer::show_first_step(const Stopwatch& stopwatch) {
  if (comm_.rank() > 0) return;
  const int64_t done = run_.step + 1;
  synchronize(comm_.device());
  console_.show({.step = done,
                 .total_steps = steps_.length.total_steps,
                 .epoch = steps_.epochs_after(done),
                 .total_epochs = steps_.epochs,
                 .samples_per_s = static_cast<double>(steps_.samples_per_step) / stopwatch.seconds()});
}

/// Records a step that is not finite, and skips it or throws: on all processes, which have the same losses.
/// Nothing is saved, so the last checkpoint stays valid.
void Trainer::handle_nonfinite(int64_t step, const NonfiniteStep& found, bool is_skipped) {
  const NonfiniteRecord record = nonfinite_record(experiment_, steps_, step, found, is_skipped);
  if (metrics_) append(record);
  if (!is_skipped)
    throw Error(ExitCode::kInternal,
                fmt::format("{}. {} train.on_nonfinite: skip leaves out such steps and continues.",
                            text_of(record), kNonfiniteRemedies));
  if (metrics_) console_.warn(text_of(record) + "; the step is skipped");
  logging_interval_.add_skipped_step();
  ++skipped_steps_;
  const int64_t most = experiment_.spec.train.max_consecutive_skips;
  if (++consecutive_skips_ > most)
    throw Error(ExitCode::kInternal,
                fmt::format("{}, the {}th step in a row; train.max_consecutive_skips is {}. {}",
                            text_of(record), consecutive_skips_, most, kNonfiniteRemedies));
}

void Trainer::audit(int64_t done) {
  engines_.await_all_values();
  const std::vector<DifferentCopies> found = find_different_copies(engines_, comm_);
  if (found.empty()) return;
  throw Error(
      ExitCode::kInternal,
      fmt::format("after step {}, {}. A copy was changed outside of training, as by faulty memory: test the "
                  "host of the rank that differs.",
                  done, describe(found, experiment_.plan)));
}

bool Trainer::log_interval(int64_t done) {
  // Data sent by the interval's steps counts toward the interval.
  engines_.await_all_values();
  const bool save_is_due = is_due_by_time(experiment_.spec.checkpoint, since_save_.seconds());
  LoggingInterval::Summary summary = logging_interval_.summarize(comm_, done, save_is_due);
  if (summary.first_nonfinite_step >= 0)
    handle_nonfinite(summary.first_nonfinite_step, summary.nonfinite, /*is_skipped=*/false);
  if (metrics_) {
    TrainRecord& record = summary.record;
    if (const auto& peak = run_.peak_flops_per_s) record.utilization = record.flops_per_s / *peak;
    append(record);
    if (const int64_t skipped = record.processes.skipped_local_steps; skipped > 0)
      console_.warn(
          fmt::format("workers skipped {} steps of their own whose loss or gradient was not finite "
                      "(train.on_nonfinite)",
                      skipped));
    most_tensor_bytes_ = std::max(most_tensor_bytes_, record.processes.peak_tensor_memory_bytes);
    console_.show(record, steps_);
    const auto warning =
        slow_data_warning(record.step_ms, record.processes.data_wait_ms, experiment_.spec.data);
    // The first interval waits for the first batch.
    if (warning && done - run_.step > logging_interval_.steps() && !std::exchange(warned_of_slow_data_, true))
      console_.warn(*warning);
  }
  logging_interval_.begin();
  return summary.save_is_due;
}

bool Trainer::evaluate(int64_t done) try {
  const PhaseScope phase(comm_, "evaluation");
  logging_interval_.pause_memory();
  const bool final = done == steps_.length.total_steps;
  if (final) console_.finish_progress();
  engines_.await_all_values();
  const auto on_skipped = [this](const std::string& message) { console_.report_skipped(message); };
  const std::filesystem::path checkpoint =
      saved_step_ == done ? CheckpointStore(folder_.dir).folder(done) : std::filesystem::path();
  LiveFullModel full_model(experiment_.plan, experiment_.exchanges, engines_, comm_);
  EvaluatedModels models{.full = full_model};
  if (engines_.has_average())
    models.make_average = [this] {
      return std::make_unique<LiveFullModel>(experiment_.plan, experiment_.exchanges, engines_, comm_,
                                             ModelValues::kAverage);
    };
  if (final) add_subnetworks(models);
  EvalRecord record = sdp::evaluate(
      {experiment_, *run_.train_source, *run_.test_source, comm_, console_.line(), on_skipped, checkpoint},
      models);
  record.step = done;
  record.measure = measure_;
  if (metrics_) {
    append(record);
    console_.info(describe(record));
  }
  if (is_best(record) && saved_step_ != done) save(done);
  for (const std::string& bytes : comm_.all_gather_strings(std::to_string(logging_interval_.resume_memory())))
    most_eval_bytes_ = std::max<int64_t>(most_eval_bytes_, std::stoll(bytes));
  return true;
} catch (const EvaluationStopped&) {
  logging_interval_.resume_memory();
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
  const std::vector<Engines::Place> places = engines_.slots();
  for (size_t s = 0; s < places.size(); ++s) {
    if (places[s].slot.replica > 0) continue;
    models.workers.push_back(places[s].slot.worker);
    subnetworks.push_back(train_step_.models()[s].get());
  }
  models.subnetwork = [subnetworks](size_t i) -> Model& { return *subnetworks[i]; };
}

/// Another host must not find the lock silent while this run trains. Stops as after a signal.
void Trainer::stop_if_lock_is_late() {
  if (!run_.shared.lock || !run_.shared.lock->is_late() || std::exchange(told_of_late_lock_, true)) return;
  console_.warn(fmt::format(
      "the heartbeat in {} cannot be written; this run stops, as another host may soon take it over",
      folder_.lock().string()));
  std::raise(SIGTERM);
}

void Trainer::save(int64_t done) {
  run_.shared.check_lock();
  const PhaseScope phase(comm_, "saving a checkpoint");
  const Stopwatch stopwatch;
  ProgressTask task(console_.line(), "saving a checkpoint");
  std::set<int64_t> best_steps;
  for (const auto& [measure, best] : best_)
    best_steps.insert(best.step);
  const SavedCheckpoint saved =
      save_checkpoint(folder_.dir, experiment_, engines_, comm_,
                      {.step = done,
                       .skipped_steps = skipped_steps_,
                       .origin = steps_.origin,
                       .metrics_lines = metrics_ ? run_.kept_metrics_lines + metrics_->appended_lines() : 0,
                       .training_data = run_.data.train_identity,
                       .test_data = run_.data.test_identity,
                       .threads = threads()},
                      best_steps, run_.description, task.on_progress());
  saved_step_ = done;
  set_notices();
  if (metrics_) append(CheckpointRecord{.step = done, .save_s = stopwatch.seconds(), .bytes = saved.bytes});
  for (const std::string& message : saved.left)
    console_.warn("could not remove an old checkpoint: " + message);
  since_save_ = Stopwatch();
}

void Trainer::set_notices() {
  comm_.set_failure_hint(text_of_last_checkpoint(saved_step_));
  comm_.set_stop_notice(
      fmt::format("stopping after this step; a second signal stops at once and loses the steps since step {}",
                  saved_step_.value_or(0)));
}

/// All processes have done the same number of steps.
ExitCode Trainer::stop(int64_t done) {
  if (logging_interval_.steps() > 0) log_interval(done);
  if (saved_step_ != done) save(done);
  console_.finish_progress();
  if (comm_.rank() == 0)
    console_.info(fmt::format("stopped after step {}; --resume continues from there", done));
  return ExitCode::kPreempted;
}

/// Writes the summary, which marks the run as finished. An existing summary is kept.
void Trainer::summarize() {
  if (comm_.rank() > 0 || std::filesystem::exists(folder_.summary())) return;
  run_.shared.check_lock();
  const std::optional<EvalRecord> last = find_evaluation(folder_.metrics(), steps_.length.total_steps);
  const RunTimes times = times_of_run(folder_.metrics());
  write_summary(
      folder_.summary(),
      {.step = std::max(run_.step, steps_.length.total_steps),
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
  console_.info(describe_end(*last, best, times, most_tensor_bytes_, most_eval_bytes_));
}

}  // namespace

ExitCode train(const Experiment& experiment, Communicator& comm, const SharedRunFolder& run,
               const Logger& log, Resume resume) {
  RunConsole console(log, comm.rank(), experiment.spec.train.log_every_steps);
  const PreparedRun prepared = prepare_run(experiment, comm, run, console, resume);
  Trainer trainer(prepared, log);
  if (comm.rank() == 0 && prepared.has_work()) {
    log.begin_file();
    write_description(prepared.description, run.folder.dir);
  }
  return trainer.run();
}

}  // namespace sdp
