#pragma once

#include <string>

#include "plan/figures.h"

namespace sdp {

/// The tables that `sdp-train plan` prints: every worker's share compared with data parallelism, balance,
/// spectral gap, memory and time on a device compared with other methods, the traffic of model parallelism,
/// and the plan's warnings. `figures` must belong to `spec` and include a forecast.
std::string describe_plan(const PlanFigures& figures, const ExperimentSpec& spec);

}  // namespace sdp
