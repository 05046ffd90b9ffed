#pragma once

// Analyses as charts.

#include <vector>

#include "analysis/analysis.h"
#include "plot/figure.h"

namespace sdp {

/// Cosine similarity over depth (SDP paper, Figure 2), one line per analysis: the mean over the workers that
/// own part of the layer, with a band of one standard deviation. Several checkpoints show its course over
/// training.
Figure similarity_figure(const std::vector<RegimeAnalysis>& analyses);

/// Norm over depth of the part of a layer's gradient that a worker owns, on a logarithmic axis: mean over the
/// workers.
Figure norm_figure(const std::vector<RegimeAnalysis>& analyses);

/// Cosine similarity against steps, one line per regime: mean over layers of the mean over workers. If there
/// are several batches, with a band of one standard deviation over them.
Figure training_figure(const std::vector<RegimeAnalysis>& analyses);

/// Ratio of deviation to bound by unit, on a logarithmic axis: one line per analysis, and the bound itself.
/// Slices of a branch's hidden width are placed side by side around the branch's position.
Figure deviation_figure(const std::vector<RegimeAnalysis>& analyses);

}  // namespace sdp
