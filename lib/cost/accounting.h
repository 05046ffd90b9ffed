#pragma once

// The cost of an exchange plan in bytes and FLOPs: for a worker that has a process to itself, for each
// process of a slot map, and for ordinary data parallelism. The tests compare these numbers with the engine's
// buffers.

#include <cstdint>
#include <vector>

#include "experiment/experiment.h"

namespace sdp {

/// Cost of one process (or of one worker that has a process to itself).
struct Cost {
  std::vector<int> units;       ///< units owned by any worker of the process
  int64_t parameters = 0;       ///< values held, each counted once
  double flops_per_sample = 0;  ///< training FLOPs per sample, mean over the process's slots
  int64_t parameter_bytes = 0;  ///< values, in the type that the forward pass uses
  /// Peak bytes of gradients, without those that wait for the rest of their bucket: the averaged gradients,
  /// or, if larger, the sum of the accumulation buffers, of all gradients of a slot if they are not released,
  /// and of the process's share of the sum if gradients are reduced after each micro-batch.
  int64_t gradient_bytes = 0;
  int64_t averaged_gradient_bytes = 0;  ///< averaged gradients, kept from the exchange to the update
  int64_t accumulation_bytes = 0;       ///< accumulation buffers of gradients
  /// Bytes of the process's share of the averaged gradients, times how often they are not read or written. A
  /// share is packed, zeroed, added to and divided; one that begins the sum is not zeroed and added to;
  /// alone, it is packed or divided.
  int64_t spared_bytes = 0;
  int64_t optimizer_bytes = 0;        ///< moments, and master values where they differ from the parameters
  int64_t reduce_bytes_per_step = 0;  ///< sent in reduce-scatters: gradients
  int64_t gather_bytes_per_step = 0;  ///< sent in all-gathers: new values; averaged gradients without shard

  int64_t bytes_sent_per_step() const { return reduce_bytes_per_step + gather_bytes_per_step; }
  int64_t state_bytes() const { return bytes_between_steps() + gradient_bytes; }
  int64_t bytes_between_steps() const { return parameter_bytes + optimizer_bytes; }

  /// The fields in plan.json (spec/json_fields.h).
  template <class Visitor>
  static void fields(Visitor& field) {
    field("units", &Cost::units);
    field("parameters", &Cost::parameters);
    field("flops_per_sample", &Cost::flops_per_sample);
    field("parameter_bytes", &Cost::parameter_bytes);
    field("gradient_bytes", &Cost::gradient_bytes);
    field("optimizer_bytes", &Cost::optimizer_bytes);
    field("reduce_bytes_per_step", &Cost::reduce_bytes_per_step);
    field("publish_bytes_per_step", &Cost::gather_bytes_per_step);
    field("bytes_sent_per_step", &Cost::bytes_sent_per_step);
  }
};

/// Cost of process `process` of the exchange plan, without local steps. FLOPs exclude the recomputation of
/// checkpointing.
Cost cost_of(const SubnetPlan& plan, const ExchangePlan& exchanges, const OptimizerSpec& optimizer,
             int process);

/// With local steps or without, as the spec says.
Cost cost_of(const ExperimentSpec& spec, const SubnetPlan& plan, const ExchangePlan& exchanges, int process);
Cost cost_of(const Experiment& experiment, int process);
/// Of every process of the experiment.
std::vector<Cost> costs_of(const Experiment& experiment);

/// By parameter: bytes of the gradient that a worker's backward pass produces for the part that the worker
/// owns.
std::vector<int64_t> gradient_bytes(const SubnetPlan& plan, Precision precision, int worker);

}  // namespace sdp
