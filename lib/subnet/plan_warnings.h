#pragma once

// What a plan does that its user may not want.

#include <string>
#include <vector>

#include "subnet/plan.h"

namespace sdp {

/// A sentence for each of: workers that own no unit; groups of workers that own no unit in common, that is,
/// components of the graph in which two workers are joined where they own the same unit. Idle workers are no
/// such group. Empty for a plan without either.
std::vector<std::string> plan_warnings(const SubnetPlan& plan);

}  // namespace sdp
