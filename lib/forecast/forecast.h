#pragma once

// What a run would take on a given machine, beside other methods of training the same model on as many
// processes.

#include <cstdint>
#include <string>
#include <vector>

#include "experiment/experiment.h"
#include "forecast/device_profile.h"
#include "forecast/model_parallel.h"
#include "forecast/operation_time.h"
#include "forecast/peak.h"

namespace sdp {

/// One method of training. Of the process that needs the most, where processes differ.
struct StepForecast {
  std::string name;
  MemoryByKind peak;  ///< what the tensors are at the moment when most stand
  int peak_process = 0;
  int64_t most_activations = 0;  ///< the most of these at any moment, bytes; of the same process
  double flops_share = 1;        ///< mean FLOPs of a sample over the full model's
  int64_t bytes_sent = 0;        ///< a step
  double compute_ms = 0;         ///< forward and backward
  double exchange_ms = 0;        ///< on the links, whether hidden or not
  double waiting_ms = 0;         ///< for what of the exchange nothing hides
  double step_ms = 0;            ///< compute, waiting, update
  bool fits = true;              ///< with the device's allowance
  int64_t largest_batch = 0;     ///< samples per worker that fit; 0: not even one

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &StepForecast::name);
    field("peak_bytes", &StepForecast::peak);
    field("peak_process", &StepForecast::peak_process);
    field("most_activation_bytes", &StepForecast::most_activations);
    field("flops_share", &StepForecast::flops_share);
    field("bytes_sent_per_step", &StepForecast::bytes_sent);
    field("compute_ms", &StepForecast::compute_ms);
    field("exchange_ms", &StepForecast::exchange_ms);
    field("waiting_ms", &StepForecast::waiting_ms);
    field("step_ms", &StepForecast::step_ms);
    field("fits", &StepForecast::fits);
    field("largest_batch_size_per_worker", &StepForecast::largest_batch);
  }
};

/// How this plan compares with other methods on the same device, by the forecast's figures alone.
struct Verdict {
  /// Step time over FLOPs, over that of data parallelism: what training takes where both get the same FLOPs
  /// (`train.budget: flops`).
  double time_at_equal_flops = 1;
  double memory_share = 1;      ///< of data parallelism's peak
  std::string smallest;         ///< the method without checkpointing, besides this plan, of the smallest peak
  double smallest_share = 1;    ///< this plan's peak over that one's
  bool pays_in_time = false;    ///< at equal FLOPs at least 5 % faster than data parallelism
  bool pays_in_memory = false;  ///< a peak at least 5 % smaller than that of every other method without
                                ///< checkpointing
  bool is_the_only_to_fit = false;  ///< of the methods without checkpointing

  template <class Visitor>
  static void fields(Visitor& field) {
    field("time_at_equal_flops_over_ddp", &Verdict::time_at_equal_flops);
    field("peak_over_ddp", &Verdict::memory_share);
    field("pays_in_time", &Verdict::pays_in_time);
    field("pays_in_memory", &Verdict::pays_in_memory);
    field("is_the_only_to_fit", &Verdict::is_the_only_to_fit);
  }
};

struct Forecast {
  DeviceProfile device;
  std::vector<MemoryByKind> per_process;  ///< peaks of the plan
  StepForecast plan;
  /// DDP; ZeRO-1 and ZeRO-2 (Rajbhandari et al. 2020: optimizer state, and gradients too, split over all);
  /// ZeRO-3/FSDP (forecast/fsdp.h); with several micro-batches per step, ZeRO-2 and this plan with the other
  /// train.reduce_every; DDP, ZeRO-3/FSDP and this plan with activation checkpointing.
  std::vector<StepForecast> others;
  ModelParallelTraffic model_parallel;  ///< of the same global batch on as many processes

  std::vector<StepForecast> methods() const;  ///< the plan, then the others
  Verdict verdict() const;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("device", &Forecast::device);
    field("methods", &Forecast::methods);
    field("verdict", &Forecast::verdict);
    field("model_parallel", &Forecast::model_parallel);
  }
};

/// A process has a device to itself. Times of operations are `times`: estimated_times(device, ..) or
/// measured.
///
/// This plan is charged the engine's exchange, in which every process sends to all others, through its own
/// links. DDP, ZeRO and FSDP are charged NCCL's collectives (forecast/collectives.h), as they are trained
/// elsewhere: an all-reduce beside the backward pass; a reduce-scatter there and an all-gather beside the
/// forward pass; FSDP's beside the pass that they are for. Checkpointing computes the forward pass of
/// branches twice.
///
/// FSDP's peak is the sum of its formula's parts and of the most activations that data parallelism has: they
/// meet where the forward pass ends. What of the peak are activations is therefore the most of them.
///
/// `costs`: of every process of the experiment (cost_of).
Forecast forecast_of(const Experiment& experiment, const std::vector<Cost>& costs,
                     const DeviceProfile& device, const OperationTimes& times);

}  // namespace sdp
