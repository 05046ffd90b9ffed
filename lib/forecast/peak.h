#pragma once

// The most that the tensors of a process take in a training step, and of what they then consist: the step of
// the engine (docs/design.md, "What goes on at the same time") is walked through with sizes instead of
// tensors.

#include <cstdint>
#include <functional>

#include "subnet/accounting.h"
#include "subnet/schedule.h"

namespace sdp {

/// By the kinds of memory/allocations.h.
struct PeakBytes {
  int64_t activations = 0;  ///< kept for the backward pass, and what stands for a moment beside it
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t buckets = 0;  ///< packed, sent, received; new values on their way

  int64_t total() const { return activations + weights + gradients + optimizer + buckets; }
};

/// Of process `process`, whose cost is `cost` (cost_of), at the batch size of `train` and with or without its
/// activation checkpointing.
PeakBytes peak_of(const SubnetPlan& plan, const Schedule& schedule, const Cost& cost, int process,
                  const TrainSpec& train);

/// The most that activations alone take at any time of the same step.
int64_t most_activations(const SubnetPlan& plan, const Schedule& schedule, const Cost& cost, int process,
                         const TrainSpec& train);

/// Largest batch size per worker, up to about two million, that `fits`; 0: not even one sample does.
int64_t largest_batch(const std::function<bool(int64_t batch_size)>& fits);

/// The same where what fits is a step whose peak is at most `memory_bytes`.
int64_t largest_batch(const SubnetPlan& plan, const Schedule& schedule, const Cost& cost, int process,
                      const TrainSpec& train, int64_t memory_bytes);

}  // namespace sdp
