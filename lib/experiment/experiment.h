#pragma once

// The values that every process derives from the spec before training starts. They are the same on all
// processes.

#include "experiment/experiment_spec.h"
#include "subnet/exchange_plan.h"
#include "subnet/nodes.h"
#include "subnet/plan.h"

namespace sdp {

struct Experiment {
  ExperimentSpec spec;
  SubnetPlan plan;
  ExchangePlan exchanges;  ///< includes the slot map
  NodeMap nodes;           ///< which processes share a node
};

}  // namespace sdp
