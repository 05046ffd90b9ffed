#pragma once

#include "experiment/spec/experiment_spec.h"
#include "subnet/nodes.h"
#include "subnet/plan.h"
#include "subnet/schedule.h"

namespace sdp {

/// What every process derives from the spec before anything is started: the same on all of them.
struct Experiment {
  ExperimentSpec spec;
  SubnetPlan plan;
  Schedule schedule;  ///< with the placement on the processes
  NodeMap nodes;      ///< of the processes
};

}  // namespace sdp
