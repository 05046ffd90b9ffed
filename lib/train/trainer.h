#pragma once

// The training loop of one process.

#include <map>
#include <memory>
#include <optional>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "feed/feed.h"
#include "plan/run_steps.h"
#include "spec/error.h"
#include "telemetry/log.h"
#include "telemetry/run_metrics.h"
#include "telemetry/stopwatch.h"
#include "train/interval.h"
#include "train/run_data.h"
#include "train/run_output.h"
#include "train/run_start.h"
#include "train/shared_run_folder.h"
#include "train/train_step.h"

namespace sdp {

struct EvaluatedModels;

class Trainer {
 public:
  /// Opens the data, builds the local subnetworks, and starts from new weights or, depending on `resume`,
  /// from a checkpoint of the run folder. Collective, as is `run`.
  Trainer(const Experiment& experiment, Communicator& comm, const SharedRunFolder& run, const Logger& log,
          Resume resume);
  ~Trainer();

  /// Trains to the end, saves and evaluates, and returns kOk. If a process is asked to stop, all processes
  /// stop after the same step, save a checkpoint and return kPreempted. A resumed run catches up on an
  /// interrupted evaluation.
  ExitCode run();

  /// Whether there are steps or an interrupted evaluation left. If not, run() leaves the run folder as it is,
  /// except that it writes a missing summary.
  bool has_work() const { return has_steps() || start_.owes_evaluation; }

  /// Rank 0 only.
  const RunDescription& description() const { return description_; }

 private:
  bool has_steps() const { return start_.step < steps_.length.total_steps; }
  int threads() const { return run_.processes.at(static_cast<size_t>(comm_.rank())).threads; }
  TrainingBatches batches_of_process() const;
  StartRecord start_record() const;
  void tell_start();

  void train_step(int64_t step);
  void show_first_step(const Stopwatch& stopwatch);
  bool is_save_due(int64_t done) const;
  bool is_log_due(int64_t done) const;
  bool ends_interval(int64_t done) const;
  double lr_of(int64_t step) const;
  void skip_step(int64_t step, const NonfiniteStep& found);
  [[noreturn]] void stop_because_not_finite(int64_t step, const NonfiniteStep& found);

  /// Throws if copies of values differ between processes. Collective.
  void audit(int64_t done);
  /// Writes the interval's line of the metrics. Returns whether checkpoint.every_minutes have passed, the
  /// same on all processes. Collective.
  bool log_interval(int64_t done);
  TrainRecord record_of(int64_t done, double loss, const std::vector<ProcessReport>& processes) const;
  void warn_of_slow_data(const TrainRecord& record);

  /// Returns whether the evaluation finished; false if all processes left it because one was asked to stop.
  bool evaluate(int64_t done);
  bool evaluate_models(int64_t done);
  void add_subnetworks(EvaluatedModels& models);
  void save(int64_t done);
  void set_notices();
  ExitCode stop(int64_t done);
  bool is_best(const EvalRecord& record);
  void summarize();
  /// Writes a line of the metrics. Rank 0 only.
  template <class Record>
  void append(const Record& record);
  void stop_if_lock_is_late();
  /// Call before writing to the run folder: throws if another run has taken it over.
  void check_lock() const;

  const Experiment& experiment_;
  Communicator& comm_;
  const SharedRunFolder& run_;
  const RunFolder& folder_;
  RunConsole console_;
  const RunData data_;
  const RunDataIdentity data_identity_;
  const std::string measure_;  ///< of evaluations (train/best.h)
  const FeedSource train_source_;
  const FeedSource test_source_;
  const double flops_per_sample_;  ///< by the plan: without recomputation (train.checkpoint_activations)
  const std::optional<double> peak_flops_per_s_;  ///< of all processes' devices, where it is known
  Stopwatch since_save_;                          ///< or since the start of the run; rank 0's decides
  Engine engine_;
  const RunStart start_;
  const RunSteps& steps_;  ///< of start_
  TrainStep train_step_;
  std::unique_ptr<Feed> feed_;  ///< null if there are no steps left
  Interval interval_;
  StepProfiler profiler_;
  StepWatch step_watch_;                    ///< shown by rank 0
  std::unique_ptr<RunMetrics> metrics_;     ///< rank 0 only, if there is work to do
  std::optional<StepTrace> trace_;          ///< with output.trace
  RunDescription description_;              ///< rank 0 only
  std::optional<int64_t> saved_step_;       ///< step of the newest checkpoint; unset: none
  int64_t skipped_steps_;                   ///< over all parts of the run
  std::map<std::string, EvalRecord> best_;  ///< rank 0, with checkpoint.keep_best: so far, by measure
  int64_t most_tensor_bytes_ = 0;           ///< rank 0: largest peak of a process in a logging interval
  int64_t most_eval_bytes_ = 0;             ///< the same of evaluations, on every rank
  int64_t consecutive_skips_ = 0;
  bool warned_of_slow_data_ = false;
  bool told_of_late_lock_ = false;
};

}  // namespace sdp
