#include "plan/experiment.h"

#include "model/layouts.h"
#include "subnet/size_limits.h"

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
  SubnetPlan plan = make_plan(layout, subnetwork, static_cast<uint64_t>(spec.seed));
  Schedule schedule = make_schedule(plan, placement, schedule_options(spec));
  NodeMap nodes = place_on_nodes(schedule, subnetwork.placement, processes_per_node.value_or(processes));
  return {spec, std::move(plan), std::move(schedule), std::move(nodes)};
}

bool has_subnetworks(const SubnetPlan& plan) {
  return plan.masking == Masking::kForward && plan.coverage() < 1;
}

}  // namespace sdp
