#pragma once

// A table of what workers or processes hold, compute and send.

#include <string>
#include <vector>

#include "plan/figures.h"

namespace sdp {

/// The table has one row per process or worker; those with equal printed figures share a row. `of` is the
/// header of the first column, which has their numbers. If there are several rows, rows with the smallest,
/// mean and largest value of each column follow, taken over all processes. `dense`: the figures of data
/// parallelism for the last row; may be null.
std::string cost_table(const std::string& of, const std::vector<ProcessFigures>& processes,
                       const ProcessFigures* dense);

}  // namespace sdp
