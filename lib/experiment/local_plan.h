#pragma once

// The plans of local steps (exchange.every_steps). Between two exchanges every worker trains alone: its engine
// follows a plan in which it is the only worker. The exchange follows the plan of all workers.

#include "experiment/experiment.h"

namespace sdp {

/// How one worker trains between exchanges. All its replicas run on one process.
struct LocalPlan {
  SubnetPlan plan;
  ExchangePlan exchanges;
  OptimizerSpec optimizer;
};
LocalPlan local_plan(const Experiment& experiment, int worker);

/// The buckets of the exchange: in the sum type, whatever the decay or group of their parameters.
ExchangePlan outer_exchanges(const Experiment& experiment);

}  // namespace sdp
