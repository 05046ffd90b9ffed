#pragma once

// An analysis as text, for people and for programs.

#include <string>
#include <vector>

#include "analysis/analysis.h"

namespace sdp {

/// One row per analysis: cosine similarities over the layers, the largest deviation relative to its bound,
/// and gradient norms. Then the results of the last step in words.
std::string describe(const std::vector<RegimeAnalysis>& analyses);

/// Header: regime,layer,depth,worker,cosine,elements,step,cosine_std,norm,norm_std,full_norm,full_norm_std.
/// One row per analysis, layer and worker that owns part of the layer: means over the batches and sample
/// standard deviations, which are nan for a single batch. The cosine is nan if a gradient is zero. full_norm
/// is the norm of the full model's gradient on the slices that the worker owns.
std::string similarity_csv(const std::vector<RegimeAnalysis>& analyses);

/// Header: regime,unit,branch,begin,end,owners,deviation_squared,bound,ratio,step. One row per analysis and
/// unit. Owners are separated by spaces; ratio is nan if the bound is 0.
std::string deviation_csv(const std::vector<RegimeAnalysis>& analyses);

/// Header: model,regime,step,cosine,cosine_std. One row per analysis: RegimeAnalysis::cosine. The deviation
/// is nan for a single batch.
std::string summary_csv(const std::vector<RegimeAnalysis>& analyses);

}  // namespace sdp
