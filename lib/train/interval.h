#pragma once

// Sums that a process keeps over the steps between two lines of the metrics.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "feed/feed.h"
#include "memory/kinds.h"
#include "train/process_report.h"
#include "train/train_step.h"

namespace sdp {

class Interval {
 public:
  /// Begins an interval. The arguments must outlive it. Without a feed no step may be added.
  Interval(Engine& engine, TrainStep& train_step, const Feed* feed, at::Device device);

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
  double seconds() const;

  /// This process's report on the interval. Waits for the device.
  ProcessReport report() const;
  /// Of the last step; unset if it was not measured. Waits for the device.
  std::optional<double> gradient_norm() const;
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

 private:
  MemoryByKind peak() const;

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
