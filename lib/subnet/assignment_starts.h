#pragma once

// The assignments from which assign_balanced (subnet/assignment.h) searches.

#include <vector>

#include "subnet/assignment.h"
#include "subnet/random_bits.h"
#include "subnet/slot_map.h"

namespace sdp {

/// The parallel classes of hyperplanes of the affine geometry AG(m, 2), for n = 2^m workers and p = n/2: n-1
/// classes of two complementary sets each, one class after another; the first m classes are independent. The
/// first c classes have lambda2 = 1/c. Empty if `workers` is not a power of two above 1.
Owners affine_hyperplanes(int workers);

/// p workers drawn uniformly at random.
std::vector<int> random_owners(int workers, int owners, RandomBits& random);

/// A random assignment in which the workers' numbers of groups of every stage are even or the quotas.
Owners construction(const AssignmentProblem& problem, RandomBits& random);

/// Several of these, of which `first` is given, and the hyperplanes if all groups have p = n/2.
std::vector<Owners> constructions(const AssignmentProblem& problem, Owners first, RandomBits& random);

}  // namespace sdp
