#pragma once

// Families of owner sets with a small lambda2, from which the search for an assignment starts.

#include <vector>

#include "subnet/owner_set.h"
#include "subnet/random_bits.h"

namespace sdp {

/// The parallel classes of hyperplanes of the affine geometry AG(m, 2), for n = 2^m workers, p = n/2: n-1
/// classes of two complementary sets each, classes in succession, the first m of them independent. The first
/// c classes have lambda2 = 1/c. Empty when `workers` is not a power of two above 1.
std::vector<OwnerSet> affine_hyperplanes(int workers);

/// The base set shifted by 0, 1, .., n-1 modulo n.
std::vector<OwnerSet> cyclic_shifts(const OwnerSet& base, int workers);

/// p residues modulo n whose differences are spread most evenly (smallest sum of squared numbers of
/// occurrences, as a difference set would have): their shifts have a small lambda2. Searched by exchanging
/// one element, from a few random sets.
OwnerSet spread_base_set(int workers, int owners, RandomBits& random);

/// The workers not in the set, for each set. With equal loads lambda2(n-p) = lambda2(p) p^2 / (n-p)^2.
std::vector<OwnerSet> complements(const std::vector<OwnerSet>& sets, int workers);

/// p workers drawn uniformly.
OwnerSet random_owners(int workers, int owners, RandomBits& random);

}  // namespace sdp
