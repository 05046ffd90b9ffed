#pragma once

// What workers or processes hold, compute and send, as a table.

#include <string>
#include <vector>

#include "plan/figures.h"

namespace sdp {

/// A row for each of `processes`, under its number; those that are equal in all printed figures share a row.
/// Where there are several rows, the smallest, the mean and the largest of each column follow, over all of
/// them. `dense`: data parallelism's, as the last row; may be null.
std::string cost_table(const std::string& of, const std::vector<ProcessFigures>& processes,
                       const ProcessFigures* dense);

}  // namespace sdp
