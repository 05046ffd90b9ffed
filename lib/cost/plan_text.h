#pragma once

#include <string>
#include <vector>

#include "cost/figures.h"

namespace sdp {

/// The tables that `sdp-train plan` prints: every worker's share compared with data parallelism, balance,
/// spectral gap, memory and time on a device compared with other methods, the traffic of model parallelism,
/// and the plan's warnings. `figures` must belong to `spec` and include a forecast.
std::string describe_plan(const PlanFigures& figures, const ExperimentSpec& spec);

/// The table has one row per process or worker; those with equal printed figures share a row. `of` is the
/// header of the first column, which has their numbers. If there are several rows, rows with the smallest,
/// mean and largest value of each column follow, taken over all processes. `dense`: the figures of data
/// parallelism for the last row; may be null.
std::string cost_table(const std::string& of, const std::vector<ProcessFigures>& processes,
                       const ProcessFigures* dense);

}  // namespace sdp
