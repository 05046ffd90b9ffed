#pragma once

// What an analysis found, as charts.

#include <vector>

#include "analysis/analysis.h"
#include "plot/figure.h"

namespace sdp {

/// Cosine similarity over depth (SDP paper, Figure 2): a line for each regime, the mean over the workers that
/// own some of the layer, in a band of a standard deviation.
Figure similarity_figure(const std::vector<RegimeAnalysis>& analyses);

/// Deviation over its bound by unit, on a logarithmic axis: a line for each regime, and the bound itself.
/// Slices of a branch's hidden width stand side by side around the branch's place.
Figure deviation_figure(const std::vector<RegimeAnalysis>& analyses);

}  // namespace sdp
