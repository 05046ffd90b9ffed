#pragma once

// The training loop of one process.

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpointing.h"
#include "checkpoint/save_timer.h"
#include "comm/communicator.h"
#include "engine/engine.h"
#include "eval/evaluation.h"
#include "feed/feed.h"
#include "plan/run_steps.h"
#include "spec/error.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"
#include "telemetry/progress.h"
#include "telemetry/run_metrics.h"
#include "telemetry/run_summary.h"
#include "train/process_report.h"
#include "train/profiler.h"
#include "train/run_data.h"
#include "train/shared_run_folder.h"
#include "train/train_step.h"

namespace sdp {

class Trainer {
 public:
  /// Opens the data, makes the local subnetworks, and starts from fresh values or, as `resume` says, from a
  /// checkpoint of the run folder if there is one. Collective, as is `run`.
  Trainer(const Experiment& experiment, Communicator& comm, const SharedRunFolder& run, Logger log,
          Resume resume);
  ~Trainer();

  /// Trains to the end, saves and evaluates: kOk; or kPreempted, after a checkpoint of the step after which
  /// all processes stopped, as one was asked to. An evaluation that was left is made up for by a run that
  /// resumes.
  ExitCode run();

  /// Whether there are steps left, or an evaluation is to be made up for. Where there is neither, the run's
  /// folder stays as it is; a summary that is missing is written.
  bool has_work() const { return has_steps() || owes_evaluation_; }

  /// Of rank 0.
  const RunDescription& description() const { return description_; }

 private:
  /// Sums since the last line of the metrics.
  struct Interval {
    at::Tensor losses;           ///< of the steps that were applied: [local slots], fp64, on the device
    at::Tensor first_nonfinite;  ///< [local slots], fp64: first step whose loss was not finite, or -1
    // Of the steps that were applied (StepResult).
    at::Tensor correct;
    int64_t counted = 0;
    int64_t steps = 0;
    int64_t skipped_steps = 0;
    int64_t skipped = 0;  ///< damaged images
    std::chrono::steady_clock::time_point began;
    // What had been counted when the interval began.
    double data_wait_ms = 0;
    double forward_ms = 0;
    double backward_ms = 0;
    double optimizer_ms = 0;
    ExchangeTotals reduce;
    ExchangeTotals publish;
  };

  bool has_steps() const { return first_step_ < steps_.length.total_steps; }
  void start_fresh_or_resume(Resume resume);
  void take_history(std::optional<int64_t> step);
  std::optional<int64_t> step_to_resume_from(Resume resume);
  void cut_back_metrics(const Manifest* saved);
  void train_step(int64_t step);
  double lr_of(int64_t step) const;
  double flops_per_s(double samples_per_s) const;
  /// Writes the interval's line. Whether checkpoint.every_minutes have passed, the same on all processes.
  /// Collective.
  bool log_interval(int64_t done);
  double mean_loss(const std::vector<double>& gathered);
  void trace_step(int64_t step, const at::Tensor& losses, const std::vector<int64_t>& samples);
  at::Tensor fp64_zeros(size_t size) const;
  TrainingBatches batches_of_process() const;
  TensorBatch next_batch();
  void report_skipped(const std::string& message);
  void warn_of_slow_data(double step_ms, double wait_ms);
  void begin_interval();
  ProcessReport report();
  NonfiniteRecord nonfinite_record(int64_t step, const NonfiniteStep& found, bool skipped) const;
  void skip_step(int64_t step, const NonfiniteStep& found);
  [[noreturn]] void stop_because_not_finite(int64_t step, const NonfiniteStep& found);
  bool evaluation_is_due(int64_t done) const;
  /// Whether a run that goes on has not evaluated the step it was saved at, as it was stopped meanwhile. Of
  /// rank 0's metrics; collective.
  bool owes_evaluation();
  /// Whether it was finished; false: all processes have left it, as one was asked to stop.
  bool evaluate(int64_t done);
  void evaluate_subnetworks(Evaluator& evaluator, EvalRecord& record);
  void save(int64_t done);
  ExitCode stop(int64_t done);
  void summarize() const;
  /// What is about to be written must not go into a folder that another run has taken over.
  void check_lock() const;
  StartRecord start_record() const;
  /// Logs a message while a line of progress may be drawn.
  void tell(const std::string& message);
  void warn(const std::string& message);
  void show_progress(const TrainRecord& record);

  const Experiment& experiment_;
  Communicator& comm_;
  const SharedRunFolder& run_;
  const RunFolder& folder_;
  Logger log_;
  const int threads_;
  ProgressLine line_;  ///< rank 0 alone shows it
  Progress progress_;
  const RunData data_;
  const std::optional<double> peak_flops_per_s_;  ///< of a process's device, where it is known
  const FeedSource train_source_;
  const FeedSource test_source_;
  const DataIdentity training_data_;
  const DataIdentity test_data_;
  RunSteps steps_;
  SaveTimer save_timer_;  ///< rank 0's decides
  Engine engine_;
  std::unique_ptr<TrainStep> train_step_;
  std::unique_ptr<Feed> feed_;
  std::unique_ptr<RunMetrics> metrics_;  ///< rank 0 only, where there are steps to do
  std::unique_ptr<JsonLines> trace_;     ///< rank 0 only, with output.trace
  Interval interval_;
  std::unique_ptr<StepProfiler> profiler_;
  std::set<std::string> reported_;  ///< damaged images, each once
  bool warned_of_slow_data_ = false;
  int64_t first_step_ = 0;
  bool owes_evaluation_ = false;  ///< of first_step_
  int64_t saved_step_ = -1;       ///< of the newest checkpoint; -1: none
  int64_t skipped_steps_ = 0;     ///< of all parts of the run
  int64_t consecutive_skips_ = 0;
  int64_t imported_batch_norm_updates_ = 0;
  int64_t kept_metrics_lines_ = 0;  ///< of earlier parts of the run; rank 0 only
  std::string checkpoint_;          ///< folder of the one it goes on from; rank 0 only
  RunHistory history_;              ///< rank 0 only
  RunDescription description_;      ///< rank 0 only
};

}  // namespace sdp
