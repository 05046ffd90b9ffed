#pragma once

// Which workers own the units of a plan: by what the `subnetwork` section asks for, or as another plan.json
// has it.

#include "subnet/plan.h"

namespace sdp {

/// Sets the owners of the plan's units; everything else of the plan must be there. Throws UsageError if
/// subnetwork.assignment_file is of another model or coverage.
void assign_owners(SubnetPlan& plan, const SubnetworkSpec& spec, uint64_t seed);

}  // namespace sdp
