#pragma once

#include <string>

#include "plan/figures.h"

namespace sdp {

/// The tables `sdp-train plan` prints: every worker's share beside data parallelism, balance, spectral gap,
/// memory and time on a device beside other methods, what model parallelism would send, and the plan's
/// warnings. The figures are those of the spec, with a forecast.
std::string describe_plan(const PlanFigures& figures, const ExperimentSpec& spec);

}  // namespace sdp
