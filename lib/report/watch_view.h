#pragma once

// Runs while they go on.

#include <string>
#include <vector>

#include "report/find_runs.h"

namespace sdp {

/// A line of at most `cells` block characters, low to high; values beyond are averaged, ones that are not
/// finite are spaces.
std::string sparkline(const std::vector<double>& values, size_t cells);

/// One line a run: name, step, share done, loss and its course, accuracy (of language models the loss) of the
/// assembled model, samples/s, time left, tensor memory, process memory; then runs that cannot be read, and
/// copies. No line is longer than `columns` characters.
std::string watch_view(const FoundRuns& found, size_t columns);

}  // namespace sdp
