#pragma once

// Forecast of a run's memory, traffic and step time on a given machine, compared with other methods of
// training the same model on as many processes.

#include <cstdint>
#include <string>
#include <vector>

#include "experiment/experiment.h"
#include "forecast/device_profile.h"
#include "forecast/model_parallel.h"
#include "forecast/operation_time.h"
#include "forecast/peak.h"

namespace sdp {

/// One method of training. Where processes differ, each number is that of the process with the largest.
struct StepForecast {
  std::string name;
  MemoryByKind peak;  ///< tensors by kind at the moment of the peak
  int peak_process = 0;
  int64_t most_activations = 0;  ///< largest bytes of activations at any moment, of the same process
  double flops_share = 1;        ///< mean FLOPs per sample over those of the full model
  int64_t bytes_sent = 0;        ///< per step
  double compute_ms = 0;         ///< forward and backward
  double exchange_ms = 0;        ///< on the links, hidden by computation or not
  double waiting_ms = 0;         ///< the part of the exchange that computation does not hide
  double step_ms = 0;            ///< compute, waiting, update
  bool fits = true;              ///< in the device's memory, including the allowance
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

/// How this plan compares with other methods on the same device, judged only by the forecast's numbers.
struct Verdict {
  /// Step time per FLOP, relative to data parallelism: the ratio of training times if both get the same FLOPs
  /// (`train.budget: flops`).
  double time_at_equal_flops = 1;
  double memory_share = 1;      ///< this plan's peak over that of data parallelism
  std::string smallest;         ///< of the other methods without checkpointing, that with the smallest peak
  double smallest_share = 1;    ///< this plan's peak over that method's
  bool pays_in_time = false;    ///< at least 5 % less time than data parallelism at equal FLOPs
  bool pays_in_memory = false;  ///< a peak at least 5 % smaller than that of every other method without
                                ///< checkpointing
  bool is_the_only_to_fit = false;  ///< among the methods without checkpointing

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
  std::vector<MemoryByKind> per_process;  ///< the plan's peak on each process
  StepForecast plan;
  /// In this order: DDP; ZeRO-1 and ZeRO-2 (Rajbhandari et al. 2020: the optimizer state, in ZeRO-2 also the
  /// gradients, divided among all processes); ZeRO-3/FSDP (forecast/fsdp.h); with several micro-batches per
  /// step, ZeRO-2 and this plan with the other train.reduce_every; DDP, ZeRO-3/FSDP and this plan with
  /// activation checkpointing.
  std::vector<StepForecast> others;
  ModelParallelTraffic model_parallel;  ///< for the same global batch on as many processes

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

/// Each process has a device to itself. `times`: times of operations, from estimated_times(device, ..) or
/// measured.
///
/// For this plan the forecast uses the engine's exchange, in which every process sends to all others through
/// its own links. For DDP, ZeRO and FSDP it uses NCCL's collectives (forecast/collectives.h), as their usual
/// implementations do: DDP's all-reduce overlaps the backward pass; ZeRO's reduce-scatter overlaps the
/// backward pass and its all-gather the forward pass; FSDP's collectives overlap the pass that needs them.
/// With checkpointing the forward pass of branches is computed twice.
///
/// FSDP's peak is the sum of the parts of its formula and of the largest activations of data parallelism, as
/// both are reached at the end of the forward pass. Its activations at the peak therefore are the largest at
/// any moment.
///
/// `costs`: the cost of every process of the experiment (cost_of).
Forecast forecast_of(const Experiment& experiment, const std::vector<Cost>& costs,
                     const DeviceProfile& device, const OperationTimes& times);

}  // namespace sdp
