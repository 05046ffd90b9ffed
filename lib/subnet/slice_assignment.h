#pragma once

// Balanced owner sets in neuron construction. Slices of one branch are alike, so each branch can be even by
// itself: every worker owns p of every n slices, and its subnetwork is the full network at C times the width.

#include <vector>

#include "subnet/assignment.h"

namespace sdp {

/// `family[group]`: which groups are slices of the same branch, or of the branches of a block; the groups of
/// a family stand together. Every n slices of a family get the n shifts of a spread base set
/// (subnet/designs.h) under a permutation of the workers, chosen among random ones for even FLOPs and for the
/// evenest co-ownership with all families before it, which makes lambda2 small. What is left, of a branch
/// with fewer slices than workers say, goes to the workers with the lowest FLOPs; with `equal_groups`, which
/// nothing else depends on here, to those with the fewest slices of the family and of all. Depends on the
/// problem alone. Throws std::logic_error for a family list of another length.
std::vector<OwnerSet> assign_balanced_slices(const AssignmentProblem& problem,
                                             const std::vector<int>& family);

}  // namespace sdp
