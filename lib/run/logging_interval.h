#pragma once

// Sums that a process keeps over the steps between two lines of the metrics, and what each process then
// reports to the others.

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "data/device_loader.h"
#include "engine/engines.h"
#include "engine/train_step.h"
#include "experiment/run_steps.h"
#include "process/memory_kinds.h"
#include "run/records.h"

namespace sdp {

/// Sent as raw bytes, so that a new member needs no serialization code: every member is 8 bytes wide.
struct ProcessReport {
  int64_t save_is_due = 0;  ///< 1: checkpoint.every_minutes have passed; only rank 0's value is used
  // Summed over the interval: correctly classified images, and images counted.
  int64_t correct = 0;
  int64_t counted = 0;
  std::array<double, 3> exchange_squares = {};  ///< OuterExchange::squares
  // Averages per step.
  ProcessRecord of_process = {};
  ExchangeRecord exchange = {};
  TimeRecord times = {};
  MemoryRecord memory = {};
};
static_assert(std::is_trivially_copyable_v<ProcessReport> && sizeof(ProcessReport) % sizeof(double) == 0);

/// Reports and losses of all processes in rank order. `losses`: [k] fp64 on the communicator's device.
/// Collective.
struct GatheredReports {
  std::vector<ProcessReport> processes;
  std::vector<double> losses;
};
GatheredReports gather(Communicator& comm, const ProcessReport& mine, const at::Tensor& losses);

class LoggingInterval {
 public:
  /// Begins an interval. The arguments must outlive it. Without a loader no step may be added.
  LoggingInterval(const Experiment& experiment, const RunSteps& steps, const Engines& engines,
                  TrainStep& train_step, const DeviceLoader* loader);

  void begin();
  /// Adds a step that was applied. Does not wait for the device.
  void add(int64_t step, const StepResult& result);
  void add_skipped_step() { ++steps_, ++skipped_steps_, gradient_norm_.reset(); }
  void add_skipped_samples(int64_t samples) { skipped_samples_ += samples; }
  /// Excludes a pause: evaluation and saving do not count as training time.
  void leave_out(std::chrono::steady_clock::duration pause) { began_ += pause; }
  /// Tensors allocated between these two do not count. Returns their peak, with all others, in bytes.
  void pause_memory();
  int64_t resume_memory();

  int64_t steps() const { return steps_; }

  /// What all processes report.
  struct Summary {
    TrainRecord record = {};  ///< the line of the metrics, without the utilization; loss NaN: no step applied
    int64_t first_nonfinite_step = -1;  ///< with a loss that is not finite; -1: none
    NonfiniteStep nonfinite = {};       ///< of that step
    bool save_is_due = false;           ///< on rank 0
  };
  /// After `done` steps. Waits for the device. Collective.
  Summary summarize(Communicator& comm, int64_t done, bool save_is_due) const;

 private:
  double seconds() const;
  ProcessReport report() const;
  /// Sets the loss and the step that is not finite. `losses`: of all processes in rank order, as sent.
  void add_losses(Summary& summary, const std::vector<double>& losses) const;
  MemoryByKind peak() const;

  const ExperimentSpec& spec_;
  const RunSteps& run_steps_;
  const double flops_per_sample_;  ///< by the plan: without recomputation (train.checkpoint_activations)
  const Engines engines_;
  const int workers_;
  const bool skips_alone_;  ///< each worker skips its own steps that are not finite
  TrainStep& train_step_;
  const DeviceLoader* loader_;
  at::Device device_;
  int64_t slots_;

  at::Tensor loss_sums_;        ///< [local slots], fp64
  at::Tensor applied_;          ///< [local slots], fp64: number of losses in the sums, if workers skip alone
  at::Tensor first_nonfinite_;  ///< [local slots], fp64
  at::Tensor correct_;          ///< over the applied steps (StepResult)
  int64_t counted_ = 0;
  at::Tensor gradient_norm_;  ///< StepResult, of the last step
  int64_t steps_ = 0;
  int64_t skipped_steps_ = 0;
  int64_t skipped_samples_ = 0;
  int64_t skipped_local_steps_ = 0;
  std::chrono::steady_clock::time_point began_;
  // Totals at the beginning of the interval.
  double data_wait_ms_ = 0;
  TimeRecord times_ = {};
  ExchangeTotals reduce_;
  ExchangeTotals gather_;
  MemoryByKind peak_;  ///< before the last pause
};

}  // namespace sdp
