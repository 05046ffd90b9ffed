#pragma once

// The most that the tensors of a process take in a training step, and of what they then consist: a step of
// the engine (docs/design.md, "What overlaps") is simulated with sizes instead of tensors.

#include <cstdint>
#include <functional>

#include "forecast/accounting.h"
#include "forecast/step_sizes.h"
#include "memory/kinds.h"
#include "subnet/schedule.h"

namespace sdp {

/// The most of a step, each when it is largest.
struct StepMaxima {
  MemoryByKind peak;
  int64_t activations = 0;  ///< of activations alone
};

/// Largest batch size per worker, up to about two million, that `fits`; 0: not even one sample does.
int64_t largest_batch(const std::function<bool(int64_t batch_size)>& fits);

/// What a step takes on the processes of a schedule, with or without activation checkpointing as `train`
/// says. Plan and schedule must outlive it. `cost` is the process's (cost_of).
class StepMemory {
 public:
  StepMemory(const SubnetPlan& plan, const Schedule& schedule, const TrainSpec& train);

  /// At the batch size of `train`.
  StepMaxima maxima(const Cost& cost, int process) const;
  MemoryByKind peak(const Cost& cost, int process) const { return maxima(cost, process).peak; }
  /// The most that activations alone take at any time of a step of this batch size per worker.
  int64_t most_activations(const Cost& cost, int process, int64_t batch_size) const;
  /// Largest batch size per worker whose step's peak is at most `memory_bytes`.
  int64_t largest_batch(const Cost& cost, int process, int64_t memory_bytes) const;

 private:
  StepSizes sizes_;
  int64_t batch_size_;
};

}  // namespace sdp
