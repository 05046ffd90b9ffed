#pragma once

// The assignments from which assign_balanced (subnet/assignment.h) searches, and the families of owner sets
// with a small lambda2 that they are made of.

#include <vector>

#include "subnet/assignment.h"
#include "subnet/random_bits.h"
#include "subnet/slot_map.h"

namespace sdp {

/// The parallel classes of hyperplanes of the affine geometry AG(m, 2), for n = 2^m workers and p = n/2: n-1
/// classes of two complementary sets each, one class after another; the first m classes are independent. The
/// first c classes have lambda2 = 1/c. Empty if `workers` is not a power of two above 1.
Owners affine_hyperplanes(int workers);

/// The base set shifted by 0, 1, .., n-1 modulo n.
Owners cyclic_shifts(const std::vector<int>& base, int workers);

/// p residues modulo n whose differences are spread as evenly as possible: the sum of the squared numbers of
/// occurrences is small, as for a difference set. The shifts of such a set have a small lambda2. Found by
/// exchanging one element at a time, starting from a few random sets.
std::vector<int> spread_base_set(int workers, int owners, RandomBits& random);

/// For each set, the workers not in it. With equal loads lambda2(n-p) = lambda2(p) p^2 / (n-p)^2.
Owners complements(const Owners& sets, int workers);

/// p workers drawn uniformly at random.
std::vector<int> random_owners(int workers, int owners, RandomBits& random);

/// With even loads or a small lambda2.
std::vector<Owners> good_assignments(const AssignmentProblem& problem, RandomBits& random);

/// The first is whole (subnet/depth.h), the others are almost. None without the depth of the groups.
std::vector<Owners> whole_assignments(const AssignmentProblem& problem, RandomBits& random);

/// Moves groups between workers until the workers' numbers of groups differ by at most one in every stage.
void make_stages_even(Owners& owners, const AssignmentProblem& problem);

}  // namespace sdp
