#pragma once

// What a run shows and writes while its steps run: messages, a progress line, a trace of the samples, a
// profile of the operators.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "experiment/experiment.h"
#include "experiment/run_steps.h"
#include "process/condition_variable.h"
#include "run/log.h"
#include "run/metrics.h"
#include "run/progress.h"
#include "run/run_folder.h"

namespace sdp {

class RunConsole {
 public:
  /// Ranks above 0 show no progress, and their logger prints only warnings.
  RunConsole(Logger log, int rank, int64_t log_every_steps);

  void info(const std::string& message);
  void warn(const std::string& message);
  /// Warns of a damaged image that was left out, once per image.
  void report_skipped(const std::string& message);

  /// Before the first step.
  void begin_progress(int64_t step) { progress_.begin(step); }
  /// Shows the progress, and records it in the log file.
  void show(const ProgressState& state);
  void show(const TrainRecord& record, const RunSteps& steps);
  void finish_progress() { progress_.finish(); }
  /// For the progress of other work, such as an evaluation.
  ProgressLine& line() { return line_; }

 private:
  Logger log_;
  ProgressLine line_;
  Progress progress_;
  std::set<std::string> reported_;
};

/// trace.jsonl (output.trace): the loss and the samples of every worker in every step.
class StepTrace {
 public:
  /// Rank 0 appends to the trace in the run folder. The arguments must outlive it.
  StepTrace(const Experiment& experiment, const RunFolder& folder, Communicator& comm);

  /// `losses`: [local slots], fp64. `samples`: this process's samples, by micro-batch, then by slot.
  /// Collective.
  void append(int64_t step, const at::Tensor& losses, const std::vector<int64_t>& samples);

 private:
  const Experiment& experiment_;
  Communicator& comm_;
  std::optional<JsonLines> lines_;  ///< rank 0 only
};

/// Tells that a long step is still running: on rank 0, writes a line to stderr and to the log file when a
/// step has taken 10 s, and again whenever that time has doubled, from a thread of its own. All steps may be
/// short: then nothing is written.
class StepWatch {
 public:
  StepWatch(const Logger& log, const Communicator& comm);
  ~StepWatch();
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

  void begin(int64_t step);
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    int64_t step;
    Clock::time_point began;
    std::chrono::seconds next;
  };
  void watch();

  const Logger log_;
  const Communicator& comm_;
  std::mutex mutex_;  ///< protects the following members
  std::condition_variable ends_;
  bool is_over_ = false;
  std::optional<Running> running_;
  std::thread thread_;
};

/// Records some steps of this process: every operator and, on CUDA, every kernel and exchange, in Chrome's
/// trace format (chrome://tracing, ui.perfetto.dev).
class StepProfiler {
 public:
  /// Records `steps` steps, beginning with the sixth after `first_step`, when caches and allocators have
  /// settled; 0: none. The file is written after the last of them, or on destruction.
  StepProfiler(int64_t first_step, int64_t steps, c10::Device device, std::filesystem::path file);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void before_step(int64_t step);
  void after_step(int64_t step);

 private:
  void write();

  const int64_t begin_, end_;
  const c10::Device device_;
  const std::filesystem::path file_;
  bool is_recording_ = false;
};

}  // namespace sdp
