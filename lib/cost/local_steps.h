#pragma once

// Memory and traffic of local steps (exchange.every_steps): every worker of a process has an engine of its
// own, and beside them are the anchors, the outer momentum and the buffers of the exchange.

#include "cost/accounting.h"
#include "cost/peak.h"
#include "experiment/experiment_spec.h"

namespace sdp {

/// Of a process. Bytes sent are those of an exchange divided by the steps from one to the next.
Cost local_cost(const ExperimentSpec& spec, const SubnetPlan& plan, const ExchangePlan& exchanges,
                int process);

/// Of a step and of the exchange that may follow it: the workers train one after another. `cost`: local_cost.
StepMaxima local_maxima(const ExperimentSpec& spec, const ExchangePlan& exchanges, StepCaptures& captures,
                        int64_t convolution_workspace_bytes, const Cost& cost, int process,
                        int64_t batch_size);

}  // namespace sdp
