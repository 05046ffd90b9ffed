#pragma once

// Sums that a process keeps over the steps between two lines of the metrics, and what each process then
// reports to the others.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "feed/feed.h"
#include "memory/kinds.h"
#include "plan/run_steps.h"
#include "telemetry/records.h"
#include "train/train_step.h"

namespace sdp {

/// Sent as raw bytes, so that a new member needs no serialization code: every member is 8 bytes wide.
struct ProcessReport {
  int64_t save_is_due = 0;  ///< 1: checkpoint.every_minutes have passed; only rank 0's value is used
  // Exchange times, summed over the interval.
  double in_flight_ms = 0;
  double waited_ms = 0;
  // Also summed over the interval: correctly classified images, and images counted.
  int64_t correct = 0;
  int64_t counted = 0;
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

class Interval {
 public:
  /// Begins an interval. The arguments must outlive it. Without a feed no step may be added.
  Interval(const Experiment& experiment, const RunSteps& steps, Engine& engine, TrainStep& train_step,
           const Feed* feed);

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

  /// This process's report on the interval. Waits for the device.
  ProcessReport report() const;
  /// [2, local slots], fp64, on the device: per slot, the sum of the losses and the first step with a
  /// non-finite loss (-1: none).
  at::Tensor losses() const;
  /// Over the applied steps, from the losses() of all processes in rank order.
  struct Losses {
    double mean = 0;                    ///< NaN where no step was applied
    int64_t first_nonfinite_step = -1;  ///< -1: none
    NonfiniteStep nonfinite = {};       ///< of that step
  };
  Losses combine(const std::vector<double>& gathered) const;
  /// The interval's line of the metrics after `done` steps, without the utilization. `processes`: the reports
  /// of all processes in rank order.
  TrainRecord record(int64_t done, double loss, const std::vector<ProcessReport>& processes) const;

 private:
  double seconds() const;
  /// Of the last step; unset if it was not measured. Waits for the device.
  std::optional<double> gradient_norm() const;
  MemoryByKind peak() const;

  const ExperimentSpec& spec_;
  const RunSteps& run_steps_;
  const double flops_per_sample_;  ///< by the plan: without recomputation (train.checkpoint_activations)
  Engine& engine_;
  TrainStep& train_step_;
  const Feed* feed_;
  at::Device device_;
  int64_t slots_;

  at::Tensor loss_sums_;        ///< [local slots], fp64
  at::Tensor first_nonfinite_;  ///< [local slots], fp64
  at::Tensor correct_;          ///< over the applied steps (StepResult)
  int64_t counted_ = 0;
  at::Tensor gradient_norm_;  ///< StepResult, of the last step
  int64_t steps_ = 0;
  int64_t skipped_steps_ = 0;
  int64_t skipped_samples_ = 0;
  std::chrono::steady_clock::time_point began_;
  // Totals at the beginning of the interval.
  double data_wait_ms_ = 0;
  TimeRecord times_ = {};
  ExchangeTotals reduce_;
  ExchangeTotals gather_;
  MemoryByKind peak_;  ///< before the last pause
};

}  // namespace sdp
