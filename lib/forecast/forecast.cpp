#include "forecast/forecast.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "subnet/accounting.h"

namespace sdp {
namespace {

/// A way to train, whole.
struct Way {
  std::string name;
  const SubnetPlan& plan;
  Schedule schedule;
  ExperimentSpec spec;

  /// How many of the processes have to be looked at: with the full model on all of them, one is as any other.
  int different_processes() const {
    return plan.owners_per_unit == plan.workers ? 1 : schedule.placement.processes;
  }
};

Way dense_way(const std::string& name, const SubnetPlan& dense, const Placement& placement,
              ExperimentSpec spec, bool shard, bool release) {
  spec.optimizer.shard = shard;
  spec.train.release_gradients = release;
  spec.train.checkpoint_activations = false;
  Schedule schedule = make_schedule(dense, placement, schedule_options(spec));
  return {name, dense, std::move(schedule), std::move(spec)};
}

Way with_checkpointing(Way way) {
  way.name += ", checkpointing";
  way.spec.train.checkpoint_activations = true;
  return way;
}

std::vector<Way> other_ways(const Way& own, const SubnetPlan& dense) {
  const auto dense_one = [&](const std::string& name, bool shard, bool release) {
    return dense_way(name, dense, own.schedule.placement, own.spec, shard, release);
  };
  std::vector<Way> ways = {dense_one("DDP", false, false), dense_one("ZeRO-1", true, false),
                           dense_one("ZeRO-2", true, true)};
  ways.push_back(with_checkpointing(ways.front()));
  if (own.plan.coverage() < 1 && !own.spec.train.checkpoint_activations)
    ways.push_back(with_checkpointing(own));
  return ways;
}

/// By process.
std::vector<Cost> costs_of(const Way& way) {
  std::vector<Cost> costs;
  for (int process = 0; process < way.different_processes(); ++process)
    costs.push_back(cost_of(way.plan, way.schedule, way.spec.optimizer, process, way.spec.train));
  return costs;
}

std::vector<PeakBytes> peaks_of(const Way& way, const std::vector<Cost>& costs) {
  std::vector<PeakBytes> peaks;
  for (size_t process = 0; process < costs.size(); ++process)
    peaks.push_back(
        peak_of(way.plan, way.schedule, costs[process], static_cast<int>(process), way.spec.train));
  return peaks;
}

int64_t needed(const PeakBytes& peak, const DeviceProfile& device) {
  return peak.total() + device.allowance_bytes;
}

/// Adds a step's times: of the slowest process, part by part.
/// `between`: bytes a step that each process sends to other nodes.
void add_times(StepForecast& forecast, const Way& way, const std::vector<Cost>& costs,
               const std::vector<int64_t>& between, const DeviceProfile& device) {
  constexpr double kForwardShare = 1.0 / 3;
  const double repeated = way.spec.train.checkpoint_activations ? 1 + kForwardShare : 1;
  for (size_t process = 0; process < costs.size(); ++process) {
    const Cost& cost = costs[process];
    const double samples =
        static_cast<double>(way.spec.train.batch_size_per_worker * way.spec.train.accumulate_steps *
                            way.schedule.placement.slots_per_process());
    const double compute_ms = 1e3 * cost.flops_per_sample * samples * repeated / device.flops_per_s;
    const auto sent = static_cast<double>(cost.bytes_sent_per_step());
    const double outside = sent > 0 ? static_cast<double>(between[process]) / sent : 0;
    const double ms_per_byte =
        1e3 * ((1 - outside) / device.inside_bytes_per_s + outside / device.between_bytes_per_s);
    const double reduce_ms = static_cast<double>(cost.reduce_bytes_per_step) * ms_per_byte;
    const double publish_ms = static_cast<double>(cost.publish_bytes_per_step) * ms_per_byte;
    // Moments and values are read and written, gradients read.
    const double update_ms =
        1e3 * static_cast<double>(2 * cost.optimizer_bytes + 2 * cost.averaged_gradient_bytes) /
        device.memory_bytes_per_s;
    const double step_ms = std::max((1 - kForwardShare) * compute_ms, reduce_ms) +
                           std::max(kForwardShare * compute_ms, publish_ms) + update_ms;
    forecast.compute_ms = std::max(forecast.compute_ms, compute_ms);
    forecast.exchange_ms = std::max(forecast.exchange_ms, reduce_ms + publish_ms);
    forecast.step_ms = std::max(forecast.step_ms, step_ms);
    forecast.bytes_sent = std::max(forecast.bytes_sent, cost.bytes_sent_per_step());
  }
}

StepForecast forecast_way(const Way& way, const std::vector<Cost>& costs, const std::vector<PeakBytes>& peaks,
                          const std::vector<int64_t>& between, const DeviceProfile& device) {
  const auto largest =
      std::max_element(peaks.begin(), peaks.end(),
                       [](const PeakBytes& a, const PeakBytes& b) { return a.total() < b.total(); });
  StepForecast forecast{.name = way.name,
                        .peak = *largest,
                        .peak_process = static_cast<int>(largest - peaks.begin()),
                        .flops_share = flops_share(way.plan)};
  forecast.fits = needed(*largest, device) <= device.memory_bytes;
  forecast.largest_batch =
      largest_batch(way.plan, way.schedule, costs[forecast.peak_process], forecast.peak_process,
                    way.spec.train, device.memory_bytes - device.allowance_bytes);
  add_times(forecast, way, costs, between, device);
  return forecast;
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
  const Way own{"this plan", plan, schedule, spec};
  const std::vector<Cost> own_costs = costs_of(own);
  Forecast forecast{.device = device, .per_process = peaks_of(own, own_costs), .plan = {}, .others = {}};
  forecast.per_process.resize(static_cast<size_t>(schedule.placement.processes),
                              forecast.per_process.front());
  const auto between = [&](const Schedule& of) {
    return nodes.nodes() > 1 ? sent_between_nodes(traffic_of(of), nodes)
                             : std::vector<int64_t>(nodes.node_of.size(), 0);
  };
  const std::vector<int64_t> between_own = between(schedule);
  forecast.plan = forecast_way(own, own_costs, forecast.per_process, between_own, device);
  // Whole branches are the fewest units; with full coverage it does not matter what they are.
  const SubnetPlan dense = dense_plan(plan, Construction::kBlock);
  for (const Way& way : other_ways(own, dense)) {
    const bool sends_the_same = way.plan.owners_per_unit == plan.owners_per_unit &&
                                way.schedule.options.shard == schedule.options.shard;
    const std::vector<Cost> costs = costs_of(way);
    forecast.others.push_back(forecast_way(way, costs, peaks_of(way, costs),
                                           sends_the_same ? between_own : between(way.schedule), device));
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
}

}  // namespace sdp
