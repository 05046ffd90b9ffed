#include "experiment/experiment.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/layouts.h"
#include "spec/error.h"
#include "subnet/size_limits.h"

namespace sdp {
namespace {

double budget_factor(const Experiment& experiment) {
  switch (experiment.spec.train.budget) {
    case Budget::kEpochs:
      return 1;
    case Budget::kFlops:
      return 1 / flops_share(experiment.plan);
    case Budget::kCoverage:
      return 1 / experiment.plan.coverage();
  }
  return 1;
}

}  // namespace

Experiment make_experiment(const ExperimentSpec& spec, int64_t processes,
                           const std::optional<std::filesystem::path>& saved_plan,
                           std::optional<int64_t> processes_per_node) {
  SubnetworkSpec subnetwork = spec.subnetwork;
  if (saved_plan) {
    subnetwork.assignment = Assignment::kFile;
    subnetwork.assignment_file = saved_plan->string();
  }
  const Placement placement = make_placement(subnetwork.workers, subnetwork.replicas, processes);
  const ModelLayout layout = layout_of(spec.model, spec.data.sequence_length);
  check_sizes(layout, spec);
  SubnetPlan plan = make_plan(layout, subnetwork, static_cast<uint64_t>(spec.seed));
  Schedule schedule = make_schedule(plan, placement, schedule_options(spec));
  NodeMap nodes = place_on_nodes(schedule, subnetwork.placement, processes_per_node.value_or(processes));
  return {spec, std::move(plan), std::move(schedule), std::move(nodes)};
}

Ranks placed_ranks(const Ranks& started, const Experiment& experiment) {
  if (experiment.nodes.placement == NodePlacement::kInOrder) return started;
  if (started.world % started.local_world != 0 || started.rank % started.local_world != started.local_rank)
    throw UsageError(fmt::format(
        "subnetwork.placement: found {}, but rank {} of {} is number {} of {} on its node ({}). Expected "
        "ranks numbered node by node, as many in each: start them so (srun --distribution=block, mpirun "
        "--map-by slot), or set in_order.",
        name_of(experiment.nodes.placement), started.rank, started.world, started.local_rank,
        started.local_world, started.source));
  Ranks placed = started;
  placed.rank = experiment.nodes.process_of_rank(started.rank);
  placed.equal_hosts = true;
  return placed;
}

bool has_subnetworks(const SubnetPlan& plan) {
  return plan.masking == Masking::kForward && plan.coverage() < 1;
}

RunSteps run_steps(const Experiment& experiment, int64_t dataset_size) {
  const ExperimentSpec& spec = experiment.spec;
  RunSteps steps;
  steps.samples_per_step = spec.train.batch_size_per_worker * spec.train.accumulate_steps *
                           spec.subnetwork.workers * spec.subnetwork.replicas;
  steps.steps_per_epoch = static_cast<double>(dataset_size) / static_cast<double>(steps.samples_per_step);
  steps.epochs = spec.train.epochs * budget_factor(experiment);
  const auto in_steps = [&](double epochs) {
    return std::max<int64_t>(1, std::llround(epochs * steps.steps_per_epoch));
  };
  steps.length.total_steps = spec.train.max_steps.value_or(in_steps(steps.epochs));
  if (spec.train.max_steps) steps.epochs = static_cast<double>(*spec.train.max_steps) / steps.steps_per_epoch;
  if (spec.schedule.warmup_steps) {
    steps.length.warmup_steps = *spec.schedule.warmup_steps;
  } else if (spec.schedule.warmup_epochs > 0) {
    steps.length.warmup_steps = in_steps(spec.schedule.warmup_epochs);
  }
  steps.eval_every_steps = spec.eval.every_epochs * steps.steps_per_epoch;
  steps.checkpoint_every_steps = spec.checkpoint.every_steps
                                     ? static_cast<double>(*spec.checkpoint.every_steps)
                                     : spec.checkpoint.every_epochs * steps.steps_per_epoch;
  return steps;
}

bool is_due(double every_steps, int64_t done) {
  if (every_steps <= 0) return false;
  const auto multiples = [&](int64_t steps) { return std::floor(static_cast<double>(steps) / every_steps); };
  return multiples(done) > multiples(done - 1);
}

}  // namespace sdp
