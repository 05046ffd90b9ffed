#pragma once

// Warnings about properties of a plan that its user may not want.

#include <string>
#include <vector>

#include "subnet/plan.h"

namespace sdp {

/// One sentence if workers own no unit, and one if groups of workers own no unit in common. Groups are the
/// connected components of the graph that connects two workers if they own a common unit; workers without
/// units do not count as a group. Empty if neither occurs.
std::vector<std::string> plan_warnings(const SubnetPlan& plan);

}  // namespace sdp
