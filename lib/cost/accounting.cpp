#include "cost/accounting.h"

#include <algorithm>
#include <numeric>

#include "cost/local_steps.h"
#include "subnet/exchange.h"
#include "subnet/storage.h"

namespace sdp {
namespace {

void add_bucket(Cost& cost, const ExchangePlan& exchanges, int index, int moments, int process) {
  const Bucket& bucket = exchanges.buckets[static_cast<size_t>(index)];
  const Precision precision = exchanges.options.precision;
  const int64_t type_bytes = bytes_of(bucket.type);
  const int64_t sum_bytes = bytes_of(sum_type(precision));
  const int64_t wire_bytes = bytes_of(exchanges.wire_type(bucket));
  const BucketElements elements = elements_on(exchanges, index, process);
  cost.parameters += elements.read;
  cost.reduce_bytes_per_step +=
      elements.of(ExchangeKind::kReduceGradients).sent * wire_bytes * exchanges.reductions_per_step();
  cost.gather_bytes_per_step += elements.of(ExchangeKind::kGatherGradients).sent * wire_bytes +
                                elements.of(ExchangeKind::kGatherValues).sent * type_bytes;
  cost.averaged_gradient_bytes +=
      exchanges.options.shard ? elements.shard * sum_bytes : elements.held * type_bytes;
  if (exchanges.accumulates()) cost.accumulation_bytes += elements.held * sum_bytes;
  cost.spared_bytes +=
      elements.shard * sum_bytes * ((elements.begins_sum ? 4 : 0) + (elements.is_alone ? 2 : 0));
  if (exchanges.reductions_per_step() > 1) cost.gradient_bytes += elements.shard * sum_bytes;
  const int master = has_master_values(bucket.type, precision) ? 1 : 0;
  cost.optimizer_bytes += elements.updated * (moments + master) * sum_bytes;
}

/// The part of a branch's hidden width that these slots store.
int64_t stored_width(const SubnetPlan& plan, int branch, const std::vector<Slot>& slots) {
  const int worker = slots.front().worker;
  if (slots.back().worker == worker)  // as in plans of many workers; the sum below takes long
    return plan.owned_width(worker, branch) + plan.frozen_width(worker, branch);
  int64_t width = 0;
  for (const std::vector<int>& units : stored_units(plan, branch, slots))
    for (const int unit : units)
      width += plan.units[unit].end - plan.units[unit].begin;
  return width;
}

/// By parameter: bytes of the part that has this width of its branch. `width`: by branch.
std::vector<int64_t> bytes_of_width(const SubnetPlan& plan, Precision precision,
                                    const std::vector<int64_t>& width) {
  std::vector<int64_t> bytes;
  for (const ParameterLayout& parameter : plan.layout.parameters) {
    const int64_t elements = plan.is_divided(parameter)
                                 ? plan.elements_of_width(parameter, width[parameter.branch.value()])
                                 : parameter.elements();
    bytes.push_back(elements * bytes_of(element_type(parameter, precision)));
  }
  return bytes;
}

int64_t sum_of(const std::vector<int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

/// Bytes of the values that these slots store. Slots with the same units of a parameter share one tensor
/// (subnet/storage.h).
int64_t stored_bytes(const SubnetPlan& plan, Precision precision, const std::vector<Slot>& slots) {
  std::vector<int64_t> width;  // by branch: of all distinct parts
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b)
    width.push_back(stored_width(plan, b, slots));
  return sum_of(bytes_of_width(plan, precision, width));
}

}  // namespace

std::vector<int64_t> gradient_bytes(const SubnetPlan& plan, Precision precision, int worker) {
  std::vector<int64_t> owned;  // by branch: owned width
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b)
    owned.push_back(plan.owned_width(worker, b));
  return bytes_of_width(plan, precision, owned);
}

Cost cost_of(const SubnetPlan& plan, const ExchangePlan& exchanges, const OptimizerSpec& optimizer,
             int process) {
  Cost cost;
  const auto moments = static_cast<int>(optimizer.state_names().size());
  for (int b = 0; b < static_cast<int>(exchanges.buckets.size()); ++b)
    add_bucket(cost, exchanges, b, moments, process);

  const Precision precision = exchanges.options.precision;
  const std::vector<Slot> slots = exchanges.slot_map.slots_of(process);
  cost.parameter_bytes = stored_bytes(plan, precision, slots);

  std::vector<bool> owns(plan.units.size(), false);
  int64_t largest_gradient = 0;  // of a slot whose gradients are kept until the backward pass ends
  for (Slot slot : slots) {
    for (int unit : plan.units_with(slot.worker, Holding::kOwned))
      owns[unit] = true;
    cost.flops_per_sample += plan.worker_flops(slot.worker) / static_cast<double>(slots.size());
    if (!exchanges.options.release_gradients)
      largest_gradient = std::max(largest_gradient, sum_of(gradient_bytes(plan, precision, slot.worker)));
  }
  for (int unit = 0; unit < static_cast<int>(owns.size()); ++unit)
    if (owns[unit]) cost.units.push_back(unit);
  cost.gradient_bytes = std::max(cost.gradient_bytes + cost.accumulation_bytes + largest_gradient,
                                 cost.averaged_gradient_bytes);
  return cost;
}

Cost cost_of(const ExperimentSpec& spec, const SubnetPlan& plan, const ExchangePlan& exchanges, int process) {
  return spec.exchange.is_local() ? local_cost(spec, plan, exchanges, process)
                                  : cost_of(plan, exchanges, spec.optimizer, process);
}

Cost cost_of(const Experiment& experiment, int process) {
  return cost_of(experiment.spec, experiment.plan, experiment.exchanges, process);
}

std::vector<Cost> costs_of(const Experiment& experiment) {
  std::vector<Cost> costs;
  for (int process = 0; process < experiment.exchanges.slot_map.processes; ++process)
    costs.push_back(cost_of(experiment, process));
  return costs;
}

}  // namespace sdp
