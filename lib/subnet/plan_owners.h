#pragma once

// Assigns owners to the units of a plan, as the `subnetwork` section requests or as another plan.json says.

#include "subnet/plan.h"

namespace sdp {

/// Sets the owners of the plan's units; all other members of the plan must be set. Throws UsageError if
/// subnetwork.assignment_file belongs to another model or coverage.
void assign_owners(SubnetPlan& plan, const SubnetworkSpec& spec, uint64_t seed);

}  // namespace sdp
