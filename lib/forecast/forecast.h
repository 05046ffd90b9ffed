#pragma once

// What a run would take on a given machine, beside other ways to train the same model on as many processes.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "forecast/device_profile.h"
#include "forecast/model_parallel.h"
#include "forecast/peak.h"
#include "subnet/nodes.h"
#include "subnet/schedule.h"

namespace sdp {

/// One way to train. Of the process that needs the most, where processes differ.
struct StepForecast {
  std::string name;
  PeakBytes peak;
  int peak_process = 0;
  double flops_share = 1;     ///< mean FLOPs of a sample over the full model's
  int64_t bytes_sent = 0;     ///< a step
  double compute_ms = 0;      ///< forward and backward
  double exchange_ms = 0;     ///< on the links, whether hidden or not
  double step_ms = 0;         ///< with what the exchanges do not hide, and the update
  bool fits = true;           ///< with the device's allowance
  int64_t largest_batch = 0;  ///< samples per worker that fit; 0: not even one
};

struct Forecast {
  DeviceProfile device;
  std::vector<PeakBytes> per_process;  ///< of the plan
  StepForecast plan;
  /// DDP; ZeRO-1 and ZeRO-2 (Rajbhandari et al. 2020: optimizer state, and gradients too, split over all);
  /// ZeRO-3/FSDP (forecast/fsdp.h); DDP, ZeRO-3/FSDP and this plan with activation checkpointing.
  std::vector<StepForecast> others;
  ModelParallelTraffic model_parallel;  ///< of the same global batch on as many processes
};

/// A process has a device to itself. Reducing hides behind the backward pass, publishing behind the forward
/// pass, which is a third of the FLOPs; FSDP's gathering behind the pass it is for. FSDP's processes exchange
/// shares between all pairs, as the engine's do. Its peak is the sum of its formula's parts and of the most
/// activations that data parallelism has: they meet where the forward pass ends. Checkpointing computes the
/// forward pass twice.
Forecast forecast_of(const SubnetPlan& plan, const Schedule& schedule, const NodeMap& nodes,
                     const ExperimentSpec& spec, const DeviceProfile& device);

/// Adds "peak_bytes" (by kind) to every entry of plan.json's `per_process`, and of `per_worker` where a
/// worker has a process to itself, and a "forecast".
void add_forecast(nlohmann::ordered_json& plan_json, const Forecast& forecast);

}  // namespace sdp
