#pragma once

// What an analysis found, for people and for programs.

#include <string>
#include <vector>

#include "analysis/analysis.h"

namespace sdp {

/// A row for each regime: cosine similarities over the layers, and the largest deviation against its bound;
/// then what that says, in words.
std::string describe(const std::vector<RegimeAnalysis>& analyses);

/// Header: regime,layer,depth,worker,cosine,elements. A row for each regime, layer and worker that owns some
/// of it; nan where a gradient was zero.
std::string similarity_csv(const std::vector<RegimeAnalysis>& analyses);

/// Header: regime,unit,branch,begin,end,owners,deviation_squared,bound,ratio. A row for each regime and unit;
/// owners with spaces between them, ratio nan where the bound is 0.
std::string deviation_csv(const std::vector<RegimeAnalysis>& analyses);

}  // namespace sdp
