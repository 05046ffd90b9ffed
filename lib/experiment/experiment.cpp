#include "experiment/experiment.h"

#include "experiment/size_limits.h"
#include "model/layouts.h"

namespace sdp {

Experiment make_experiment(const ExperimentSpec& spec, int64_t processes,
                           const std::optional<std::filesystem::path>& saved_plan,
                           std::optional<int64_t> processes_per_node) {
  SubnetworkSpec subnetwork = spec.subnetwork;
  if (saved_plan) {
    subnetwork.assignment = Assignment::kFile;
    subnetwork.assignment_file = saved_plan->string();
  }
  const Placement placement = make_placement(subnetwork.workers, subnetwork.replicas, processes);
  const ModelLayout layout = layout_of(spec.model, spec.data.sequence_length());
  check_sizes(layout, spec);
  check_batch_norms(layout, spec);
  SubnetPlan plan = make_plan(layout, subnetwork, static_cast<uint64_t>(spec.seed));
  Schedule schedule = make_schedule(plan, placement, schedule_options(spec));
  NodeMap nodes = place_on_nodes(schedule, subnetwork.placement, processes_per_node.value_or(processes));
  return {spec, std::move(plan), std::move(schedule), std::move(nodes)};
}

ScheduleOptions schedule_options(const ExperimentSpec& spec) {
  ScheduleOptions options;
  options.precision = spec.train.precision;
  options.bucket_bytes = static_cast<int64_t>(spec.train.bucket_megabytes * 1e6);
  options.decay_norms_and_biases = spec.optimizer.decay_norms_and_biases();
  options.shard = spec.optimizer.shard;
  options.accumulate_steps = spec.train.accumulate_steps;
  options.reduce_every = spec.train.reduce_every;
  options.release_gradients = spec.train.release_gradients;
  if (spec.train.reduce_dtype)
    options.reduce_type =
        *spec.train.reduce_dtype == WireType::kBf16 ? ElementType::kBf16 : ElementType::kF32;
  return options;
}

}  // namespace sdp
