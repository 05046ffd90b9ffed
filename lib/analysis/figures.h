#pragma once

// What an analysis found, as charts.

#include <vector>

#include "analysis/analysis.h"
#include "plot/figure.h"

namespace sdp {

/// Cosine similarity over depth (SDP paper, Figure 2): a line for each analysis, the mean over the workers
/// that own some of the layer, in a band of a standard deviation. Of several checkpoints it is that figure
/// over training.
Figure similarity_figure(const std::vector<RegimeAnalysis>& analyses);

/// Norm of what a worker has of a layer's gradient over depth, on a logarithmic axis: mean over the workers.
Figure norm_figure(const std::vector<RegimeAnalysis>& analyses);

/// Cosine similarity against steps, a line for each regime: mean over layers of the mean over workers, in a
/// band of a standard deviation over the batches where there are several.
Figure training_figure(const std::vector<RegimeAnalysis>& analyses);

/// Deviation over its bound by unit, on a logarithmic axis: a line for each analysis, and the bound itself.
/// Slices of a branch's hidden width stand side by side around the branch's place.
Figure deviation_figure(const std::vector<RegimeAnalysis>& analyses);

}  // namespace sdp
