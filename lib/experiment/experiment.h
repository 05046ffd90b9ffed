#pragma once

// The values that every process derives from the spec before training starts. They are the same on all
// processes.

#include "experiment/spec/experiment_spec.h"
#include "subnet/nodes.h"
#include "subnet/plan.h"
#include "subnet/schedule.h"

namespace sdp {

struct Experiment {
  ExperimentSpec spec;
  SubnetPlan plan;
  Schedule schedule;  ///< includes the slot map
  NodeMap nodes;      ///< which processes share a node
};

}  // namespace sdp
