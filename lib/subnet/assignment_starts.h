#pragma once

// The assignments from which assign_balanced (subnet/assignment.h) searches.

#include <vector>

#include "subnet/assignment.h"
#include "subnet/member_set.h"
#include "subnet/random_bits.h"

namespace sdp {

/// The assignments that the result must not be worse than.
std::vector<Owners> plain_assignments(const AssignmentProblem& problem);

/// With even loads or a small lambda2.
std::vector<Owners> good_assignments(const AssignmentProblem& problem, RandomBits& random);

/// The first is whole (subnet/wholeness.h), the others are almost. None without the depth of the groups.
std::vector<Owners> whole_assignments(const AssignmentProblem& problem, RandomBits& random);

/// Moves groups between workers until the workers' numbers of groups differ by at most one in every stage.
void make_stages_even(Owners& owners, const AssignmentProblem& problem);

}  // namespace sdp
