#include "forecast/forecast.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "forecast/fsdp.h"
#include "subnet/accounting.h"

namespace sdp {
namespace {

constexpr double kForwardShare = 1.0 / 3;  // of a step's FLOPs

/// A way to train with the engine.
struct EngineWay {
  std::string name;
  const SubnetPlan& plan;
  Schedule schedule;
  ExperimentSpec spec;

  /// How many of the processes have to be looked at: with the full model on all of them, one is as any other.
  int different_processes() const {
    return plan.owners_per_unit == plan.workers ? 1 : schedule.placement.processes;
  }
};

EngineWay dense_way(const std::string& name, const SubnetPlan& dense, const Placement& placement,
                    ExperimentSpec spec, bool shard, bool release) {
  spec.optimizer.shard = shard;
  spec.train.release_gradients = release;
  spec.train.checkpoint_activations = false;
  Schedule schedule = make_schedule(dense, placement, schedule_options(spec));
  return {name, dense, std::move(schedule), std::move(spec)};
}

EngineWay with_checkpointing(EngineWay way) {
  way.name += ", checkpointing";
  way.spec.train.checkpoint_activations = true;
  return way;
}

/// What a process takes, computes and sends in a step.
struct ProcessStep {
  PeakBytes peak;
  double flops = 0;  ///< forward and backward, with what checkpointing computes again
  int64_t bytes_sent_in_forward = 0;
  int64_t bytes_sent_in_backward = 0;
  int64_t bytes_sent_between_nodes = 0;  ///< of both
  int64_t bytes_updated = 0;             ///< read and written by the update

  int64_t bytes_sent() const { return bytes_sent_in_forward + bytes_sent_in_backward; }
};

/// FLOPs of a process's samples in a step.
double step_flops(double flops_per_sample, const EngineWay& way) {
  const double samples =
      static_cast<double>(way.spec.train.batch_size_per_worker * way.spec.train.accumulate_steps *
                          way.schedule.placement.slots_per_process());
  return flops_per_sample * samples * (way.spec.train.checkpoint_activations ? 1 + kForwardShare : 1);
}

/// Bytes that an update touches: moments and values are read and written, gradients read.
int64_t updated_bytes(int64_t optimizer_bytes, int64_t gradient_bytes) {
  return 2 * optimizer_bytes + 2 * gradient_bytes;
}

/// By process. `between`: bytes a step that each of them sends to other nodes.
std::vector<ProcessStep> steps_of(const EngineWay& way, const std::vector<Cost>& costs,
                                  const std::vector<int64_t>& between) {
  const StepMemory memory(way.plan, way.schedule, way.spec.train);
  std::vector<ProcessStep> steps;
  for (int process = 0; process < static_cast<int>(costs.size()); ++process) {
    const Cost& cost = costs[process];
    steps.push_back({.peak = memory.peak(cost, process),
                     .flops = step_flops(cost.flops_per_sample, way),
                     .bytes_sent_in_forward = cost.publish_bytes_per_step,
                     .bytes_sent_in_backward = cost.reduce_bytes_per_step,
                     .bytes_sent_between_nodes = between[process],
                     .bytes_updated = updated_bytes(cost.optimizer_bytes, cost.averaged_gradient_bytes)});
  }
  return steps;
}

/// Adds a step's times: of the slowest process, part by part.
void add_times(StepForecast& forecast, const ProcessStep& step, const DeviceProfile& device) {
  const double compute_ms = 1e3 * step.flops / device.flops_per_s;
  const auto sent = static_cast<double>(step.bytes_sent());
  const double outside = sent > 0 ? static_cast<double>(step.bytes_sent_between_nodes) / sent : 0;
  const double ms_per_byte =
      1e3 * ((1 - outside) / device.inside_bytes_per_s + outside / device.between_bytes_per_s);
  const double backward_ms = static_cast<double>(step.bytes_sent_in_backward) * ms_per_byte;
  const double forward_ms = static_cast<double>(step.bytes_sent_in_forward) * ms_per_byte;
  const double update_ms = 1e3 * static_cast<double>(step.bytes_updated) / device.memory_bytes_per_s;
  const double step_ms = std::max((1 - kForwardShare) * compute_ms, backward_ms) +
                         std::max(kForwardShare * compute_ms, forward_ms) + update_ms;
  forecast.compute_ms = std::max(forecast.compute_ms, compute_ms);
  forecast.exchange_ms = std::max(forecast.exchange_ms, backward_ms + forward_ms);
  forecast.step_ms = std::max(forecast.step_ms, step_ms);
  forecast.bytes_sent = std::max(forecast.bytes_sent, step.bytes_sent());
}

/// All but the largest batch.
StepForecast forecast_steps(const std::string& name, double flops_share,
                            const std::vector<ProcessStep>& steps, const DeviceProfile& device) {
  const auto largest = std::max_element(
      steps.begin(), steps.end(),
      [](const ProcessStep& a, const ProcessStep& b) { return a.peak.total() < b.peak.total(); });
  StepForecast forecast{.name = name,
                        .peak = largest->peak,
                        .peak_process = static_cast<int>(largest - steps.begin()),
                        .flops_share = flops_share,
                        .fits = largest->peak.total() <= device.tensor_bytes()};
  for (const ProcessStep& step : steps)
    add_times(forecast, step, device);
  return forecast;
}

/// Bytes a step that each process sends to other nodes.
std::vector<int64_t> between_nodes(const Schedule& schedule, const NodeMap& nodes) {
  return nodes.nodes() > 1 ? sent_between_nodes(schedule, nodes)
                           : std::vector<int64_t>(nodes.node_of.size(), 0);
}

/// By process that has to be looked at.
std::vector<Cost> costs_of(const EngineWay& way) {
  std::vector<Cost> costs;
  for (int process = 0; process < way.different_processes(); ++process)
    costs.push_back(cost_of(way.plan, way.schedule, way.spec.optimizer, process, way.spec.train));
  return costs;
}

/// Of a way whose processes' steps are `steps_of(way, costs, ..)`.
StepForecast forecast_engine(const EngineWay& way, const std::vector<Cost>& costs,
                             const std::vector<ProcessStep>& steps, const DeviceProfile& device) {
  StepForecast forecast = forecast_steps(way.name, flops_share(way.plan), steps, device);
  forecast.largest_batch =
      StepMemory(way.plan, way.schedule, way.spec.train)
          .largest_batch(costs[forecast.peak_process], forecast.peak_process, device.tensor_bytes());
  return forecast;
}

/// Share of what a process sends to all others alike that goes to other nodes, at most.
double share_to_other_nodes(const NodeMap& nodes) {
  const auto processes = static_cast<double>(nodes.node_of.size());
  const auto smallest_node = static_cast<double>(nodes.processes_in(nodes.nodes() - 1).size());
  return nodes.nodes() > 1 ? (processes - smallest_node) / (processes - 1) : 0;
}

/// Fully sharded data parallelism where `ddp` is data parallelism, with or without checkpointing.
StepForecast forecast_fsdp(const EngineWay& ddp, const NodeMap& nodes, const DeviceProfile& device) {
  const Placement& placement = ddp.schedule.placement;
  const FsdpBytes bytes = fsdp_bytes(ddp.plan.layout, ddp.spec, placement.processes);
  const Cost cost = cost_of(ddp.plan, ddp.schedule, ddp.spec.optimizer, 0, ddp.spec.train);
  const StepMemory memory(ddp.plan, ddp.schedule, ddp.spec.train);
  const auto peak_at = [&](int64_t batch_size) {
    return PeakBytes{.activations = memory.most_activations(cost, 0, batch_size),
                     .weights = bytes.weights + bytes.gathered_weights,
                     .gradients = bytes.gradients + bytes.unit_gradients,
                     .optimizer = bytes.optimizer,
                     .buckets = bytes.reduce_buffer};
  };
  const int64_t micro_batches = ddp.spec.train.accumulate_steps * placement.slots_per_process();
  ProcessStep step{.peak = peak_at(ddp.spec.train.batch_size_per_worker),
                   .flops = step_flops(cost.flops_per_sample, ddp),
                   .bytes_sent_in_forward = micro_batches * bytes.gather_sent,
                   .bytes_sent_in_backward = micro_batches * (bytes.gather_sent + bytes.reduce_sent),
                   .bytes_updated = updated_bytes(bytes.optimizer, bytes.gradients)};
  step.bytes_sent_between_nodes =
      std::llround(share_to_other_nodes(nodes) * static_cast<double>(step.bytes_sent()));
  const std::string name =
      ddp.spec.train.checkpoint_activations ? "ZeRO-3/FSDP, checkpointing" : "ZeRO-3/FSDP";
  StepForecast forecast = forecast_steps(name, /*flops_share=*/1, {step}, device);
  forecast.largest_batch =
      largest_batch([&](int64_t batch) { return peak_at(batch).total() <= device.tensor_bytes(); });
  return forecast;
}

/// Samples of a step, of all workers and replicas.
int64_t global_batch_size(const ExperimentSpec& spec, const Placement& placement) {
  return spec.train.batch_size_per_worker * spec.train.accumulate_steps * placement.slots();
}

nlohmann::ordered_json peak_json(const PeakBytes& peak) {
  return {{"total", peak.total()},       {"weights", peak.weights},         {"gradients", peak.gradients},
          {"optimizer", peak.optimizer}, {"activations", peak.activations}, {"buckets", peak.buckets}};
}

nlohmann::ordered_json way_json(const StepForecast& way) {
  return {{"name", way.name},
          {"peak_bytes", peak_json(way.peak)},
          {"peak_process", way.peak_process},
          {"flops_share", way.flops_share},
          {"bytes_sent_per_step", way.bytes_sent},
          {"compute_ms", way.compute_ms},
          {"exchange_ms", way.exchange_ms},
          {"step_ms", way.step_ms},
          {"fits", way.fits},
          {"largest_batch_size_per_worker", way.largest_batch}};
}

}  // namespace

Forecast forecast_of(const SubnetPlan& plan, const Schedule& schedule, const NodeMap& nodes,
                     const ExperimentSpec& spec, const DeviceProfile& device) {
  const EngineWay own{"this plan", plan, schedule, spec};
  const std::vector<Cost> own_costs = costs_of(own);
  const std::vector<int64_t> own_between = between_nodes(schedule, nodes);
  const std::vector<ProcessStep> own_steps = steps_of(own, own_costs, own_between);
  Forecast forecast{.device = device,
                    .per_process = {},
                    .plan = forecast_engine(own, own_costs, own_steps, device),
                    .others = {},
                    .model_parallel = model_parallel_traffic(plan.layout, spec.train.precision,
                                                             global_batch_size(spec, schedule.placement),
                                                             schedule.placement.processes)};
  for (const ProcessStep& step : own_steps)
    forecast.per_process.push_back(step.peak);
  forecast.per_process.resize(static_cast<size_t>(schedule.placement.processes),
                              forecast.per_process.front());

  const auto add = [&](const EngineWay& way, const std::vector<Cost>& costs) {
    const bool sends_the_same = way.plan.owners_per_unit == plan.owners_per_unit &&
                                way.schedule.options.shard == schedule.options.shard;
    const std::vector<ProcessStep> steps =
        steps_of(way, costs, sends_the_same ? own_between : between_nodes(way.schedule, nodes));
    forecast.others.push_back(forecast_engine(way, costs, steps, device));
  };
  // Whole branches are the fewest units; with full coverage it does not matter what they are.
  const SubnetPlan dense = dense_plan(plan, Construction::kBlock);
  const auto dense_one = [&](const std::string& name, bool shard, bool release) {
    return dense_way(name, dense, schedule.placement, spec, shard, release);
  };
  const EngineWay ddp = dense_one("DDP", false, false);
  const EngineWay checkpointing_ddp = with_checkpointing(ddp);
  add(ddp, costs_of(ddp));
  for (const EngineWay& zero : {dense_one("ZeRO-1", true, false), dense_one("ZeRO-2", true, true)})
    add(zero, costs_of(zero));
  forecast.others.push_back(forecast_fsdp(ddp, nodes, device));
  add(checkpointing_ddp, costs_of(checkpointing_ddp));
  forecast.others.push_back(forecast_fsdp(checkpointing_ddp, nodes, device));
  if (plan.coverage() < 1 && !spec.train.checkpoint_activations) {
    // Of a cost only the kept activations are others, which a step's walk counts itself.
    add(with_checkpointing(own), own_costs);
  }
  return forecast;
}

void add_forecast(nlohmann::ordered_json& plan_json, const Forecast& forecast) {
  for (size_t process = 0; process < forecast.per_process.size(); ++process)
    plan_json["per_process"][process]["peak_bytes"] = peak_json(forecast.per_process[process]);
  if (plan_json["processes"] == plan_json["workers"] && plan_json["replicas"] == 1)
    plan_json["per_worker"] = plan_json["per_process"];
  const DeviceProfile& device = forecast.device;
  nlohmann::ordered_json& json = plan_json["forecast"];
  json["device"] = {{"name", device.name},
                    {"flops_per_s", device.flops_per_s},
                    {"memory_bytes_per_s", device.memory_bytes_per_s},
                    {"inside_bytes_per_s", device.inside_bytes_per_s},
                    {"between_bytes_per_s", device.between_bytes_per_s},
                    {"memory_bytes", device.memory_bytes},
                    {"allowance_bytes", device.allowance_bytes}};
  json["ways"].push_back(way_json(forecast.plan));
  for (const StepForecast& way : forecast.others)
    json["ways"].push_back(way_json(way));
  const ModelParallelTraffic& traffic = forecast.model_parallel;
  json["model_parallel"] = {
      {"global_batch_size", traffic.global_batch_size},
      {"tensor",
       {{"processes", traffic.tensor_processes}, {"bytes_sent_per_step", traffic.tensor_bytes_sent}}},
      {"pipeline",
       {{"stages", traffic.pipeline_stages}, {"bytes_sent_per_step", traffic.pipeline_bytes_sent}}}};
}

}  // namespace sdp
