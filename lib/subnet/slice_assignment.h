#pragma once

// Balanced owner sets in neuron construction. The slices of one branch are alike, so each branch can be
// balanced separately: every worker owns p of every n slices, and its subnetwork is the full network at C
// times the width.

#include <vector>

#include "subnet/assignment.h"

namespace sdp {

/// `family[group]`: groups of the same family are slices of the same branch, or of the branches of a block.
/// The groups of a family are consecutive.
///
/// Every n slices of a family get the n shifts of a spread base set (subnet/designs.h) with permuted workers.
/// The permutation is chosen from random ones for even FLOPs and for the most even co-ownership with all
/// previous families, which makes lambda2 small. Left-over slices, for example of a branch with fewer slices
/// than workers, go to the workers with the lowest FLOPs; with `equal_numbers`, to those with the fewest
/// slices of the family and then of all families. Nothing else depends on `equal_numbers`. The result depends
/// only on the arguments; `depth` is not used. Throws std::logic_error if `family` does not have one entry
/// per group.
Owners assign_balanced_slices(const AssignmentProblem& problem, const std::vector<int>& family,
                              bool equal_numbers = false);

}  // namespace sdp
