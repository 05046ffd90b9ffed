#pragma once

// Forecast of a run's memory, traffic and step time on a given machine, compared with other methods of
// training the same model on as many processes.

#include <cstdint>
#include <string>
#include <vector>

#include "cost/device_profile.h"
#include "cost/other_methods.h"
#include "cost/verdict.h"
#include "experiment/experiment.h"

namespace sdp {

/// This plan's run as a whole.
struct RunForecast {
  int64_t global_batch_samples = 1;
  int64_t tokens_per_sample = 0;  ///< 0: images
  double samples_per_s = 0;
  double utilization = 0;  ///< share of the devices' peak FLOP/s; 0: the peak is not known
  double hours = 0;        ///< 0: the length of the run depends on the size of the data set

  template <class Visitor>
  static void fields(Visitor& field) {
    field("global_batch_samples", &RunForecast::global_batch_samples);
    field("tokens_per_sample", &RunForecast::tokens_per_sample);
    field("samples_per_s", &RunForecast::samples_per_s);
    field("utilization", &RunForecast::utilization);
    field("hours", &RunForecast::hours);
  }
};

struct Forecast {
  DeviceProfile device;
  std::vector<MemoryByKind> per_process;  ///< the plan's peak on each process
  StepForecast plan;
  RunForecast run;
  /// Without activation checkpointing and with it: DDP; ZeRO-1 and ZeRO-2 (Rajbhandari et al. 2020: the
  /// optimizer state, in ZeRO-2 also the gradients, divided among all processes); this plan; with several
  /// micro-batches per step, ZeRO-2 and this plan also with the other train.reduce_every; ZeRO-3/FSDP
  /// (cost/other_methods.h). Then, where none of these fits, the best that does: data parallelism with
  /// smaller micro-batches; this plan with smaller micro-batches, or else with a lower coverage.
  std::vector<StepForecast> others;

  std::vector<StepForecast> methods() const;  ///< the plan, then the others
  Verdict verdict() const { return verdict_of(methods()); }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("device", &Forecast::device);
    field("run", &Forecast::run);
    field("methods", &Forecast::methods);
    field("verdict", &Forecast::verdict);
  }
};

/// Each process has a device to itself. `costs`: of every process of the experiment (costs_of).
///
/// For this plan the forecast uses the engine's exchange, in which every process sends to all others through
/// its own links. For DDP, ZeRO and FSDP it uses NCCL's collectives (ring_s), as their usual
/// implementations do: DDP's all-reduce overlaps the backward pass; ZeRO's reduce-scatter overlaps the
/// backward pass and its all-gather the forward pass; FSDP's collectives overlap the pass that needs them.
/// With checkpointing the forward pass of branches is computed twice.
///
/// FSDP's peak is the sum of the parts of its formula and of the largest activations of data parallelism, as
/// both are reached at the end of the forward pass. Its activations at the peak therefore are the largest at
/// any moment.
Forecast forecast_of(const Experiment& experiment, const std::vector<Cost>& costs,
                     const DeviceProfile& device);

/// Of these only the plan itself, without its coverage and largest batch.
StepForecast forecast_plan(const Experiment& experiment, const std::vector<Cost>& costs,
                           const DeviceProfile& device);

}  // namespace sdp
