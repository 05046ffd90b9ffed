#pragma once

// Which workers own which units. Units that must share their owners (the branches of a transformer block,
// say) are one entry, a group; every group gets exactly p different owners out of n. All functions depend on
// the problem alone: the same numbers and seed give the same owner sets on every machine.

#include <cstdint>
#include <vector>

#include "subnet/owner_set.h"

namespace sdp {

/// Any unit of work and of memory will do for `flops` and `bytes`: only ratios matter.
struct AssignmentProblem {
  int workers = 1;            ///< n
  int owners = 1;             ///< p, in 1..n
  std::vector<double> flops;  ///< of every group; decides a step's time
  std::vector<double> bytes;  ///< of every group; decides a worker's memory
  uint64_t seed = 0;
  double flops_fixed = 0;  ///< of the shared part that every worker has besides its groups
  double bytes_fixed = 0;
  // What assign_balanced takes as even: largest loads up to so much above the lowest it finds. Bytes have a
  // little room because the last fraction of a percent can cost all of the mixing: with none, loads that come
  // in equal pairs split the workers into two halves that share nothing.
  double flops_tolerance = 0.05;
  double bytes_tolerance = 0.01;
  // Few unequal groups (ResNet-18's eight blocks) may mix badly at the lowest memory: so much more of it is
  // accepted where lambda2 falls by at least twice that share. 0: never.
  double bytes_for_mixing = 0.15;
  /// What assign_balanced and assign_balanced_slices choose from: only assignments in which the workers'
  /// numbers of groups differ by one at most (of every family too, for slices).
  bool equal_groups = false;
};

/// How even an assignment is. A ratio is 1 when all workers carry the same; both include the fixed part.
struct Balance {
  double flops_max_over_mean = 1;
  double bytes_max_over_mean = 1;
  /// Second eigenvalue of the co-ownership matrix (subnet/spectral.h), groups weighted by 1, bytes and FLOPs.
  double lambda2_by_unit = 0;
  double lambda2_by_bytes = 0;
  double lambda2_by_flops = 0;
};

/// Searches for the best assignment in lexicographic order: the most even FLOPs, then the smallest largest
/// bytes, then the smallest lambda2 by unit, where loads within the problem's tolerances count as equal (see
/// the problem for what memory may buy). It starts from designs with a small lambda2, from greedy
/// assignments, and from the window and the random assignment of the same problem, which it is never worse
/// than. With `equal_groups` it also starts from its result without, and in each of these groups are first
/// moved until the numbers are equal. The effort is a fixed number of steps, a fraction of a second in a
/// Release build (twice that with `equal_groups`). This and the functions below throw std::logic_error for a
/// problem outside the limits above.
std::vector<OwnerSet> assign_balanced(const AssignmentProblem& problem);

/// Group i: workers i, i+1, .., i+p-1 modulo n.
std::vector<OwnerSet> assign_window(const AssignmentProblem& problem);

/// Every group: p workers drawn uniformly and independently. A worker may end up with no group.
std::vector<OwnerSet> assign_random(const AssignmentProblem& problem);

Balance balance_of(const AssignmentProblem& problem, const std::vector<OwnerSet>& owners);

}  // namespace sdp
