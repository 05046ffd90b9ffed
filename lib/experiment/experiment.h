#pragma once

// What every process derives from the spec before anything is started: the same on all of them.

#include <filesystem>
#include <optional>

#include "comm/ranks.h"
#include "experiment/lr_schedule.h"
#include "experiment/spec/experiment_spec.h"
#include "subnet/accounting.h"
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

/// The ranks under which this process joins the others: `started` as the launcher numbered it, with the rank
/// that subnet/nodes.h gives to its place. Rank i then runs the slots of process i, so that everything that
/// goes in order of processes goes in order of workers, wherever they are. Rank 0 stays what it is, as the
/// others look for it at its address. Throws UsageError where a placement other than in_order is asked for
/// and the launcher did not number the ranks node by node, as many in each.
Ranks placed_ranks(const Ranks& started, const Experiment& experiment);

/// Whether workers train models of their own, smaller than the full one: forward masking below full coverage.
bool has_subnetworks(const SubnetPlan& plan);

/// The run in steps. An epoch is dataset_size samples over all workers and replicas.
struct RunSteps {
  RunLength length;
  double steps_per_epoch = 1;
  double epochs = 0;  ///< after `budget` scaled them
  int64_t samples_per_step = 1;
  double eval_every_steps = 0;        ///< 0: only at the end; epochs need not be whole steps
  double checkpoint_every_steps = 0;  ///< likewise
};

/// Whether a multiple of `every_steps` was reached with the last of `done` steps. Never for 0.
bool is_due(double every_steps, int64_t done);

RunSteps run_steps(const Experiment& experiment, int64_t dataset_size);

}  // namespace sdp
