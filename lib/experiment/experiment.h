#pragma once

// What every process derives from the spec before anything is started: the same on all of them.

#include <filesystem>
#include <optional>

#include "experiment/spec/experiment_spec.h"
#include "subnet/nodes.h"
#include "subnet/plan.h"
#include "subnet/schedule.h"

namespace sdp {

struct Experiment {
  ExperimentSpec spec;
  SubnetPlan plan;
  Schedule schedule;  ///< with the placement on the processes
  NodeMap nodes;      ///< of the processes
};

/// With `saved_plan`, the plan.json of a run, the owners are that run's; otherwise they are assigned as the
/// spec says. Without `processes_per_node` all processes are in one node. Throws UsageError where the number
/// of processes does not divide the workers, or there are more processes per node than processes.
Experiment make_experiment(const ExperimentSpec& spec, int64_t processes,
                           const std::optional<std::filesystem::path>& saved_plan = std::nullopt,
                           std::optional<int64_t> processes_per_node = std::nullopt);

/// Schedule options as the spec says them.
ScheduleOptions schedule_options(const ExperimentSpec& spec);

}  // namespace sdp
