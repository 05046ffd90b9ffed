#pragma once

// A view of runs in progress.

#include <string>
#include <vector>

#include "report/find_runs.h"

namespace sdp {

/// A line of at most `cells` block characters, low to high. If there are more values, neighbors are
/// averaged; values that are not finite are shown as spaces.
std::string sparkline(const std::vector<double>& values, size_t cells);

/// One line per run: name, step, share done, loss and its trend, the assembled model's accuracy (for language
/// models, its loss), samples/s, time left, tensor memory, process memory. Then runs that cannot be read, and
/// copies. No line is longer than `columns` characters.
std::string watch_view(const FoundRuns& found, size_t columns);

}  // namespace sdp
