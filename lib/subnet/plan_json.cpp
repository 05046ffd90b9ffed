#include "subnet/plan_json.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "subnet/accounting.h"
#include "subnet/exchange.h"
#include "subnet/plan_warnings.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

Json unit_json(const SubnetPlan& plan, int index) {
  const Unit& unit = plan.units[index];
  return {{"branch", plan.layout.branches[unit.branch].name},
          {"begin", unit.begin},
          {"end", unit.end},
          {"parameters", plan.unit_parameters(index)},
          {"flops", plan.unit_flops(index).training()},
          {"owners", unit.owners.members()}};
}

Json cost_json(const Cost& cost) {
  return {{"units", cost.units},
          {"parameters", cost.parameters},
          {"flops_per_sample", cost.flops_per_sample},
          {"parameter_bytes", cost.parameter_bytes},
          {"gradient_bytes", cost.gradient_bytes},
          {"optimizer_bytes", cost.optimizer_bytes},
          {"activation_bytes", cost.activation_bytes},
          {"reduce_bytes_per_step", cost.reduce_bytes_per_step},
          {"publish_bytes_per_step", cost.gather_bytes_per_step},
          {"bytes_sent_per_step", cost.bytes_sent_per_step()}};
}

Json spectrum_json(const std::vector<OwnerSet>& owners, const std::vector<double>& weights, int workers) {
  const Spectrum spectrum = spectrum_of(owners, weights, workers);
  return {{"lambda2", spectrum.lambda2},
          {"spectral_gap", spectrum.spectral_gap},
          {"lambda2_bound", spectrum.lambda2_bound},
          {"lambda2_normalized", spectrum.lambda2_normalized}};
}

int workers_with_units(const SubnetPlan& plan) {
  std::vector<bool> owns_units(plan.workers, false);
  for (const Unit& unit : plan.units)
    for (int owner : unit.owners)
      owns_units[owner] = true;
  return static_cast<int>(std::count(owns_units.begin(), owns_units.end(), true));
}

/// Largest over mean of a figure over the workers.
template <class Figure>
double max_over_mean(const std::vector<Cost>& costs, Figure figure) {
  double largest = 0;
  double sum = 0;
  for (const Cost& cost : costs) {
    largest = std::max(largest, static_cast<double>(figure(cost)));
    sum += static_cast<double>(figure(cost));
  }
  return sum > 0 ? largest * static_cast<double>(costs.size()) / sum : 1;
}

std::vector<Cost> costs(const SubnetPlan& plan, const Schedule& schedule, const ExperimentSpec& spec) {
  std::vector<Cost> result;
  for (int process = 0; process < schedule.placement.processes; ++process)
    result.push_back(cost_of(plan, schedule, spec.optimizer, process, spec.train));
  return result;
}

/// The same of workers that have a process each. `per_process`: of the schedule, which may be that already.
std::vector<Cost> costs_alone(const SubnetPlan& plan, const Schedule& schedule, const ExperimentSpec& spec,
                              const std::vector<Cost>& per_process) {
  if (schedule.placement.processes == plan.workers && schedule.placement.replicas == 1) return per_process;
  const Placement alone = make_placement(plan.workers, 1, plan.workers);
  return costs(plan, make_schedule(plan, alone, schedule_options(spec)), spec);
}

/// Plain data parallelism by the same engine.
Schedule dense_schedule(const SubnetPlan& dense, const Placement& placement, const ExperimentSpec& spec) {
  ScheduleOptions options = schedule_options(spec);
  options.shard = false;
  return make_schedule(dense, placement, options);
}

Json dense_json(const SubnetPlan& dense, const ExperimentSpec& spec) {
  const Schedule schedule = dense_schedule(dense, make_placement(dense.workers, 1, dense.workers), spec);
  return cost_json(cost_of(dense, schedule, spec.optimizer, 0, spec.train));
}

std::string hash_of(const Json& identity) {
  const std::string text = identity.dump();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Json traffic_json(const NodeTraffic& traffic) {
  return {{"inside_bytes_per_step", traffic.inside},
          {"between_bytes_per_step", traffic.between},
          {"largest_inside_bytes_per_step", traffic.largest_inside},
          {"largest_between_bytes_per_step", traffic.largest_between}};
}

/// Bytes of the gradients that data parallelism reduces.
int64_t dense_gradient_bytes(const Schedule& dense) {
  int64_t bytes = 0;
  for (int b = 0; b < static_cast<int>(dense.buckets.size()); ++b)
    bytes += elements_on(dense, b, 0).held * bytes_of(dense.buckets[b].type);
  return bytes;
}

/// Adds what each process, and data parallelism's largest on as many processes, sends to other nodes.
void add_nodes(Json& json, const SubnetPlan& plan, const SubnetPlan& dense, const Schedule& schedule,
               const NodeMap& nodes, const ExperimentSpec& spec) {
  const std::vector<int64_t> sent = sent_between_nodes(schedule, nodes);
  for (size_t process = 0; process < sent.size(); ++process) {
    json["per_process"][process]["node"] = nodes.node_of[process];
    json["per_process"][process]["bytes_sent_between_nodes_per_step"] = sent[process];
  }
  const Schedule ddp = dense_schedule(dense, schedule.placement, spec);
  const NodeTraffic of_ddp = node_traffic(ddp, nodes);
  json["dense"]["bytes_sent_between_nodes_per_step"] = of_ddp.largest_between;
  json["nodes"] = {{"placement", name_of(nodes.placement)},
                   {"nodes", nodes.nodes()},
                   {"processes_per_node", nodes.processes_per_node},
                   {"units_in_one_node", units_in_one_node(plan, schedule.placement, nodes)},
                   {"sdp", traffic_json(node_traffic(schedule, nodes))},
                   {"ddp", traffic_json(of_ddp)},
                   {"ddp_ring", traffic_json(ring_traffic(dense_gradient_bytes(ddp), nodes))}};
}

}  // namespace

Json plan_identity_json(const SubnetPlan& plan) {
  Json units = Json::array();
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u)
    units.push_back(unit_json(plan, u));
  return {{"model", plan.layout.name},
          {"workers", plan.workers},
          {"owners_per_unit", plan.owners_per_unit},
          {"coverage", plan.coverage()},
          {"construction", name_of(plan.construction)},
          {"masking", name_of(plan.masking)},
          {"units", std::move(units)}};
}

std::string plan_hash(const SubnetPlan& plan) {
  return hash_of(plan_identity_json(plan));
}

Json plan_json(const SubnetPlan& plan, const Schedule& schedule, const NodeMap& nodes,
               const ExperimentSpec& spec) {
  std::vector<double> one(plan.units.size(), 1), parameters, flops;
  std::vector<OwnerSet> owners;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    parameters.push_back(static_cast<double>(plan.unit_parameters(u)));
    flops.push_back(plan.unit_flops(u).training());
    owners.push_back(plan.owners(u).members());
  }
  const Json by_unit = spectrum_json(owners, one, plan.workers);
  const std::vector<Cost> per_process = costs(plan, schedule, spec);
  const std::vector<Cost> per_worker = costs_alone(plan, schedule, spec, per_process);

  Json json = plan_identity_json(plan);
  json["hash"] = hash_of(json);
  json["lambda2"] = by_unit["lambda2"];
  json["spectral_gap"] = by_unit["spectral_gap"];
  json["spectrum"] = {
      {"by_unit", by_unit},
      {"by_parameters", spectrum_json(owners, parameters, plan.workers)},
      {"by_flops", spectrum_json(owners, flops, plan.workers)},
      {"lambda2_normalized_bound", lambda2_normalized_bound(workers_with_units(plan), plan.owners_per_unit)}};
  json["balance"] = {
      {"flops_max_over_mean", max_over_mean(per_worker, [](const Cost& c) { return c.flops_per_sample; })},
      {"parameters_max_over_mean", max_over_mean(per_worker, [](const Cost& c) { return c.parameters; })},
      {"state_bytes_max_over_mean", max_over_mean(per_worker, [](const Cost& c) { return c.state_bytes(); })},
      {"bytes_sent_max_over_mean",
       max_over_mean(per_worker, [](const Cost& c) { return c.bytes_sent_per_step(); })}};
  json["flops_share"] = flops_share(plan);
  json["replicas"] = schedule.placement.replicas;
  json["processes"] = schedule.placement.processes;
  for (const Cost& cost : per_worker)
    json["per_worker"].push_back(cost_json(cost));
  for (const Cost& cost : per_process)
    json["per_process"].push_back(cost_json(cost));
  const SubnetPlan dense = dense_plan(plan, plan.construction);
  json["dense"] = dense_json(dense, spec);
  add_nodes(json, plan, dense, schedule, nodes, spec);
  json["warnings"] = plan_warnings(plan);
  return json;
}

}  // namespace sdp
