#pragma once

// The peak bytes of a process's tensors in a training step, by kind. A step of the engine (docs/design.md,
// "What overlaps") is simulated with sizes instead of tensors.

#include <cstdint>
#include <functional>
#include <vector>

#include "cost/accounting.h"
#include "cost/step_captures.h"
#include "process/memory_kinds.h"
#include "subnet/exchange_plan.h"

namespace sdp {

/// Maxima over a step. The two may be reached at different moments.
struct StepMaxima {
  MemoryByKind peak;
  int64_t activations = 0;  ///< largest bytes of activations only
};

/// Largest batch size per worker, up to about two million, for which `fits` is true; 0: not even one sample
/// fits.
int64_t largest_batch(const std::function<bool(int64_t batch_size)>& fits);

/// Memory of a step on the processes of an exchange plan. ExchangePlan and captures, which are of the same
/// plan, must outlive it. `cost` is the cost of the same process (cost_of). `convolution_workspace_bytes`: of
/// the device (DeviceProfile), which counts as activations; 0 if that is not known.
class StepMemory {
 public:
  StepMemory(const ExchangePlan& exchanges, StepCaptures& captures, int64_t convolution_workspace_bytes);
  /// The same for a spec that may have local steps, with the exchange that ends a round. It must outlive
  /// this.
  StepMemory(const ExperimentSpec& spec, const ExchangePlan& exchanges, StepCaptures& captures,
             int64_t convolution_workspace_bytes);

  StepMaxima maxima(const Cost& cost, int process, int64_t batch_size) const;
  /// Largest batch size per worker whose step's peak is at most `memory_bytes`.
  int64_t largest_batch(const Cost& cost, int process, int64_t memory_bytes) const;

 private:
  struct BucketSizes;
  class Simulation;
  /// By batch size. `cost` must outlive it.
  std::function<StepMaxima(int64_t batch_size)> maxima_of(const Cost& cost, int process) const;
  BucketSizes sizes_of(size_t bucket, int process, const std::vector<char>& scattered) const;

  const SubnetPlan& plan_;
  const ExchangePlan& exchanges_;
  StepCaptures& captures_;
  const int64_t convolution_workspace_bytes_;
  const ExperimentSpec* local_spec_ = nullptr;  ///< with local steps
  const BucketIndex index_;
  std::vector<std::vector<int64_t>> strided_elements_of_;  ///< by bucket and segment: in strided pieces
};

/// Peak of a process of the experiment, without a device's convolution workspace.
MemoryByKind planned_peak(const Experiment& experiment, int process, bool on_gpu);

/// Peak of an evaluation of the experiment beside the values and the optimizer state that a process holds
/// (Cost): the assembled model, that of the average of the values, and what a pass over a batch allocates. A
/// single subnetwork, or a batch that the data set does not fill, is taken to need no more.
int64_t evaluation_bytes(const Experiment& experiment, bool on_gpu, int64_t convolution_workspace_bytes);

}  // namespace sdp
