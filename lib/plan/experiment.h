#pragma once

#include <filesystem>
#include <optional>

#include "subnet/accounting.h"
#include "subnet/experiment.h"

namespace sdp {

/// With `saved_plan`, the plan.json of a run, the owners are that run's; otherwise they are assigned as the
/// spec says. Without `processes_per_node` all processes are in one node. Throws UsageError where the number
/// of processes does not divide the workers, or there are more processes per node than processes.
Experiment make_experiment(const ExperimentSpec& spec, int64_t processes,
                           const std::optional<std::filesystem::path>& saved_plan = std::nullopt,
                           std::optional<int64_t> processes_per_node = std::nullopt);

/// Whether workers train models of their own, smaller than the full one: forward masking below full coverage.
bool has_subnetworks(const SubnetPlan& plan);

}  // namespace sdp
