#pragma once

// What an analysis found, for people and for programs.

#include <string>
#include <vector>

#include "analysis/analysis.h"

namespace sdp {

/// The regime, and its step where the analyses are of several.
std::string label_of(const RegimeAnalysis& analysis, const std::vector<RegimeAnalysis>& analyses);

/// A row for each analysis: cosine similarities over the layers, the largest deviation against its bound, and
/// gradient norms; then what those of the last step say, in words.
std::string describe(const std::vector<RegimeAnalysis>& analyses);

/// Header: regime,layer,depth,worker,cosine,elements,step,cosine_std,norm,norm_std,full_norm,full_norm_std. A
/// row for each analysis, layer and worker that owns some of it: means over the batches and sample standard
/// deviations, which are nan of one batch; cosines are nan where a gradient was zero. full_norm is that of
/// the full model's gradient on what the worker owns.
std::string similarity_csv(const std::vector<RegimeAnalysis>& analyses);

/// Header: regime,unit,branch,begin,end,owners,deviation_squared,bound,ratio,step. A row for each analysis
/// and unit; owners with spaces between them, ratio nan where the bound is 0.
std::string deviation_csv(const std::vector<RegimeAnalysis>& analyses);

}  // namespace sdp
