#pragma once

// What a schedule costs, in bytes and FLOPs, for a worker alone in its process, for each process of a
// placement, and for ordinary data parallelism. The engine's own buffers are compared with these in the
// tests.

#include <cstdint>
#include <vector>

#include "experiment/experiment.h"

namespace sdp {

/// Cost of one process (or of one worker that has a process to itself).
struct Cost {
  std::vector<int> units;       ///< owned by any worker of the process
  int64_t parameters = 0;       ///< held values, each counted once
  double flops_per_sample = 0;  ///< training FLOPs of one sample, mean over the process's slots
  int64_t parameter_bytes = 0;  ///< values, in the type the forward pass uses
  /// The most that stands of gradients, besides those that wait for the rest of their bucket: averaged ones,
  /// or buffers they are added up in; all of them where they are not released; reduced after each
  /// micro-batch, the own share of their sum.
  int64_t gradient_bytes = 0;
  int64_t averaged_gradient_bytes = 0;  ///< from the exchanges to the update
  int64_t optimizer_bytes = 0;          ///< moments, and master values where they differ from the parameters
  int64_t activation_bytes = 0;         ///< kept for backward at the micro-batch size (largest slot)
  int64_t reduce_bytes_per_step = 0;    ///< sent in reduce-scatters: gradients
  int64_t gather_bytes_per_step = 0;    ///< sent in all-gathers: new values, averaged gradients (no shard)

  int64_t bytes_sent_per_step() const { return reduce_bytes_per_step + gather_bytes_per_step; }
  int64_t state_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }

  /// Those of plan.json (spec/json_fields.h).
  template <class Visitor>
  static void fields(Visitor& field) {
    field("units", &Cost::units);
    field("parameters", &Cost::parameters);
    field("flops_per_sample", &Cost::flops_per_sample);
    field("parameter_bytes", &Cost::parameter_bytes);
    field("gradient_bytes", &Cost::gradient_bytes);
    field("optimizer_bytes", &Cost::optimizer_bytes);
    field("activation_bytes", &Cost::activation_bytes);
    field("reduce_bytes_per_step", &Cost::reduce_bytes_per_step);
    field("publish_bytes_per_step", &Cost::gather_bytes_per_step);
    field("bytes_sent_per_step", &Cost::bytes_sent_per_step);
  }
};

/// Cost of process `process` of the schedule, at the batch size of `train` and with or without its activation
/// checkpointing. FLOPs do not count what checkpointing computes again.
Cost cost_of(const SubnetPlan& plan, const Schedule& schedule, const OptimizerSpec& optimizer, int process,
             const TrainSpec& train);

Cost cost_of(const Experiment& experiment, int process);

/// By parameter: bytes of the gradient that a worker's backward pass leaves, of what the worker owns.
std::vector<int64_t> gradient_bytes(const SubnetPlan& plan, Precision precision, int worker);

}  // namespace sdp
