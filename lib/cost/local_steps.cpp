#include "cost/local_steps.h"

#include <algorithm>
#include <set>

#include "subnet/exchange.h"

namespace sdp {
namespace {

/// Elements of a bucket in the exchange that ends a round, on one process (engine/outer_exchange.cpp).
struct RoundElements {
  int64_t read = 0, held = 0, shard = 0;
  int64_t copies = 0;   ///< held by its workers, each counted
  Volume reduced = {};  ///< a message for each worker
  Volume gathered = {};
};

RoundElements round_elements(const SubnetPlan& plan, const ExchangePlan& outer, int bucket, int process) {
  const BucketElements of_bucket = elements_on(outer, bucket, process);
  RoundElements elements{.read = of_bucket.read,
                         .held = of_bucket.held,
                         .shard = of_bucket.shard,
                         .gathered = of_bucket.of(ExchangeKind::kGatherValues)};
  const std::vector<int> workers = outer.slot_map.workers_of(process);
  for (const Segment& segment : outer.buckets[static_cast<size_t>(bucket)].segments) {
    if (!segment.is_held_by(process)) continue;
    const MemberSet& owners = plan.owners(segment.unit);
    const int64_t here = std::ranges::count_if(workers, [&](int worker) { return owners.contains(worker); });
    const int64_t shard = segment.shard_elements(process);
    elements.copies += here * segment.elements;
    elements.reduced.sent += here * (segment.elements - shard);
    elements.reduced.received += (static_cast<int64_t>(owners.size()) - here) * shard;
  }
  return elements;
}

/// Largest size of the buffers of an exchange, which takes one bucket after another.
int64_t buffer_bytes(const ExperimentSpec& spec, const SubnetPlan& plan, const ExchangePlan& outer,
                     int process) {
  const bool copies_momentum = spec.exchange.outer.momentum > 0 && !spec.exchange.outer.nesterov;
  int64_t most = 0;
  for (int b = 0; b < static_cast<int>(outer.buckets.size()); ++b) {
    const RoundElements of = round_elements(plan, outer, b, process);
    const int64_t mean = of.copies + of.reduced.sent + of.reduced.received + of.shard;
    const int64_t values =
        (copies_momentum ? 3 : 2) * of.shard + of.read + of.gathered.sent + of.gathered.received;
    most = std::max(most, std::max(mean, values) * bytes_of(outer.buckets[static_cast<size_t>(b)].type));
  }
  return most;
}

}  // namespace

Cost local_cost(const ExperimentSpec& spec, const SubnetPlan& plan, const ExchangePlan& exchanges,
                int process) {
  Cost sum;
  std::set<int> units;
  const std::vector<int> workers = exchanges.slot_map.workers_of(process);
  for (const int worker : workers) {
    const LocalPlan local = local_plan(spec.optimizer, plan, exchanges, worker);
    const Cost own = cost_of(local.plan, local.exchanges, local.optimizer, /*process=*/0);
    units.insert(own.units.begin(), own.units.end());
    sum.parameters += own.parameters;
    sum.flops_per_sample += own.flops_per_sample / static_cast<double>(workers.size());
    sum.parameter_bytes += own.parameter_bytes;
    sum.accumulation_bytes += own.accumulation_bytes;
    sum.averaged_gradient_bytes += own.averaged_gradient_bytes;
    sum.spared_bytes += own.spared_bytes;
    sum.optimizer_bytes += own.optimizer_bytes;
    // All that accumulate, and of one the rest.
    sum.gradient_bytes = std::max(sum.gradient_bytes, own.gradient_bytes - own.accumulation_bytes);
  }
  sum.gradient_bytes += sum.accumulation_bytes;
  sum.units.assign(units.begin(), units.end());
  const ExchangePlan outer = outer_exchanges(plan, exchanges);
  const int64_t moments = (spec.exchange.outer.momentum > 0 ? 1 : 0) + (spec.optimizer.ema_decay > 0 ? 1 : 0);
  // With inner_state average, the moments of the workers' optimizers take the same way as their values.
  int64_t times = 1;
  if (spec.exchange.inner_state == InnerState::kAverage)
    times +=
        static_cast<int64_t>(spec.optimizer.state_names().size()) - (spec.optimizer.ema_decay > 0 ? 1 : 0);
  for (int b = 0; b < static_cast<int>(outer.buckets.size()); ++b) {
    const RoundElements of = round_elements(plan, outer, b, process);
    const int64_t bytes = bytes_of(outer.buckets[static_cast<size_t>(b)].type);
    sum.optimizer_bytes += (of.held + moments * of.shard) * bytes;
    sum.reduce_bytes_per_step += times * of.reduced.sent * bytes;
    sum.gather_bytes_per_step += times * of.gathered.sent * bytes;
  }
  sum.reduce_bytes_per_step /= *spec.exchange.every_steps;
  sum.gather_bytes_per_step /= *spec.exchange.every_steps;
  return sum;
}

LocalStepMemory::LocalStepMemory(const ExperimentSpec& spec, const ExchangePlan& exchanges,
                                 StepCaptures& captures, int64_t convolution_workspace_bytes, int process)
    : buffer_bytes_(
          buffer_bytes(spec, captures.plan(), outer_exchanges(captures.plan(), exchanges), process)) {
  for (const int worker : exchanges.slot_map.workers_of(process))
    workers_.emplace_back(local_plan(spec.optimizer, captures.plan(), exchanges, worker), captures,
                          convolution_workspace_bytes);
}

StepMaxima LocalStepMemory::maxima(const Cost& cost, int64_t batch_size) const {
  StepMaxima most{.peak = {.weights = cost.parameter_bytes, .optimizer = cost.optimizer_bytes}};
  most.peak.buckets = buffer_bytes_;
  for (const Worker& worker : workers_) {
    StepMaxima step = worker.memory.maxima(cost, /*process=*/0, batch_size);
    step.peak.gradients += cost.accumulation_bytes - worker.accumulation_bytes;  // of the other workers
    if (step.peak.total() > most.peak.total()) most.peak = step.peak;
    most.activations = std::max(most.activations, step.activations);
  }
  return most;
}

}  // namespace sdp
