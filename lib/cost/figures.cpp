#include "cost/figures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "cost/peak.h"
#include "cost/step_limits.h"
#include "spec/json_fields.h"
#include "subnet/exchange.h"
#include "subnet/plan.h"

namespace sdp {
namespace {

bool has_a_process_each(const SlotMap& slot_map) {
  return slot_map.processes == slot_map.workers && slot_map.replicas == 1;
}

/// The costs of the workers with one process per worker and no replicas.
std::vector<Cost> costs_of_workers(const Experiment& experiment, const std::vector<Cost>& per_process) {
  if (has_a_process_each(experiment.exchanges.slot_map)) return per_process;
  const int workers = experiment.plan.workers;
  Experiment alone = experiment;
  alone.exchanges =
      make_exchange_plan(experiment.plan, make_slot_map(workers, 1, workers), experiment.exchanges.options);
  return costs_of(alone);
}

/// Plain data parallelism with the same engine.
ExchangePlan dense_exchange_plan(const SubnetPlan& dense, const SlotMap& slot_map, ExchangeOptions options) {
  options.shard = false;
  return make_exchange_plan(dense, slot_map, options);
}

SpectrumFigures spectrum_figures(const SubnetPlan& plan) {
  std::vector<double> one(plan.units.size(), 1), parameters, flops;
  Owners owners;
  std::vector<bool> owns_units(plan.workers, false);
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    parameters.push_back(static_cast<double>(plan.unit_parameters(u)));
    flops.push_back(plan.unit_flops(u).training());
    owners.push_back(plan.owners(u).members());
    for (int owner : plan.owners(u))
      owns_units[owner] = true;
  }
  const auto with_units = static_cast<int>(std::count(owns_units.begin(), owns_units.end(), true));
  return {.by_unit = spectrum_of(owners, one, plan.workers),
          .by_parameters = spectrum_of(owners, parameters, plan.workers),
          .by_flops = spectrum_of(owners, flops, plan.workers),
          .lambda2_normalized_bound = lambda2_normalized_bound(with_units, plan.owners_range().second)};
}

/// Largest value of a figure over the workers divided by the mean.
template <class Figure>
double max_over_mean(const std::vector<Cost>& costs, Figure figure) {
  double largest = 0;
  double sum = 0;
  for (const Cost& cost : costs) {
    largest = std::max(largest, static_cast<double>(std::invoke(figure, cost)));
    sum += static_cast<double>(std::invoke(figure, cost));
  }
  return sum > 0 ? largest * static_cast<double>(costs.size()) / sum : 1;
}

BalanceFigures balance_figures(const std::vector<Cost>& costs) {
  return {.flops = max_over_mean(costs, &Cost::flops_per_sample),
          .parameters = max_over_mean(costs, &Cost::parameters),
          .state_bytes = max_over_mean(costs, &Cost::state_bytes),
          .bytes_sent = max_over_mean(costs, &Cost::bytes_sent_per_step)};
}

/// Bytes of the gradients that data parallelism reduces.
int64_t gradient_bytes(const ExchangePlan& dense) {
  int64_t bytes = 0;
  for (int b = 0; b < static_cast<int>(dense.buckets.size()); ++b)
    bytes += elements_on(dense, b, 0).held * bytes_of(dense.buckets[b].type);
  return bytes;
}

NodeFigures node_figures(const Experiment& experiment, const ExchangePlan& ddp) {
  const NodeMap& nodes = experiment.nodes;
  return {.placement = nodes.placement,
          .nodes = nodes.nodes(),
          .processes_per_node = nodes.processes_per_node,
          .units_in_one_node = units_in_one_node(experiment.plan, experiment.exchanges.slot_map, nodes),
          .sdp = node_traffic(experiment.exchanges, nodes),
          .ddp = node_traffic(ddp, nodes),
          .ddp_ring = ring_traffic(gradient_bytes(ddp), nodes)};
}

/// Bytes that a micro-batch leaves for its backward pass, of the process's slot with the most.
int64_t activation_bytes(StepCaptures& captures, const SlotMap& slot_map, int process, int64_t batch_size) {
  double most = 0;
  for (const Slot& slot : slot_map.slots_of(process))
    most = std::max(most, captures.of(slot.worker).kept_bytes(static_cast<double>(batch_size)));
  return std::llround(most);
}

std::vector<ProcessFigures> process_figures(const std::vector<Cost>& costs, const SlotMap& slot_map,
                                            StepCaptures& captures, int64_t batch_size) {
  std::vector<ProcessFigures> figures;
  for (int process = 0; process < static_cast<int>(costs.size()); ++process)
    figures.push_back({costs[process], activation_bytes(captures, slot_map, process, batch_size)});
  return figures;
}

}  // namespace

PlanFigures figures_of(const Experiment& experiment) {
  const std::vector<Cost> costs = costs_of(experiment);
  const SubnetPlan& plan = experiment.plan;
  const ExchangePlan& exchanges = experiment.exchanges;
  PlanFigures figures;
  static_cast<PlanIdentity&>(figures) = identity_of(plan);
  figures.hash = hash_of(figures);
  figures.spectrum = spectrum_figures(plan);
  figures.flops_share = flops_share(plan);
  figures.replicas = exchanges.slot_map.replicas;
  figures.processes = exchanges.slot_map.processes;
  const std::vector<Cost> of_workers = costs_of_workers(experiment, costs);
  figures.balance = balance_figures(of_workers);
  const int64_t batch_size = experiment.spec.train.batch_size_per_worker;
  StepCaptures captures(step_shape(experiment.spec, /*on_gpu=*/false), plan);
  const SlotMap one_each = make_slot_map(plan.workers, 1, plan.workers);
  figures.per_worker = process_figures(of_workers, one_each, captures, batch_size);
  figures.per_process = process_figures(costs, exchanges.slot_map, captures, batch_size);
  const std::vector<int64_t> sent_between = sent_between_nodes(exchanges, experiment.nodes);
  for (size_t process = 0; process < costs.size(); ++process) {
    figures.per_process[process].node = experiment.nodes.node_of[process];
    figures.per_process[process].bytes_sent_between_nodes_per_step = sent_between[process];
  }
  const SubnetPlan dense = dense_plan(plan, plan.construction);
  const ExchangePlan of_workers_dense = dense_exchange_plan(dense, one_each, exchanges.options);
  StepCaptures dense_captures(step_shape(experiment.spec, /*on_gpu=*/false), dense);
  figures.dense = {cost_of(dense, of_workers_dense, experiment.spec.optimizer, 0),
                   activation_bytes(dense_captures, one_each, 0, batch_size)};
  const ExchangePlan ddp = dense_exchange_plan(dense, exchanges.slot_map, exchanges.options);
  figures.nodes = node_figures(experiment, ddp);
  figures.dense.bytes_sent_between_nodes_per_step = figures.nodes.ddp.largest_between;
  if (plan.construction == Construction::kBlock)
    for (int worker = 0; worker < plan.workers; ++worker)
      figures.depth.push_back(depth_of(plan, worker));
  figures.warnings = plan_warnings(plan);
  return figures;
}

PlanFigures figures_of(const Experiment& experiment, const DeviceProfile& device) {
  PlanFigures figures = figures_of(experiment);
  const std::vector<Cost> costs(figures.per_process.begin(), figures.per_process.end());
  figures.forecast = forecast_of(experiment, costs, device);
  const int64_t evaluation = evaluation_bytes(experiment, device.is_gpu, device.convolution_workspace_bytes);
  for (size_t process = 0; process < figures.per_process.size(); ++process) {
    ProcessFigures& of_process = figures.per_process[process];
    of_process.peak_bytes = figures.forecast->per_process[process];
    of_process.evaluation_peak_bytes = of_process.bytes_between_steps() + evaluation;
  }
  if (has_a_process_each(experiment.exchanges.slot_map)) figures.per_worker = figures.per_process;
  return figures;
}

std::string to_json(const PlanFigures& figures) {
  return json_text(json_of(figures), 2) + "\n";
}

}  // namespace sdp
