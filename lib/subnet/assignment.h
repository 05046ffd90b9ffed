#pragma once

// Which workers own which units. Units that must have the same owners (for example, the branches of a
// transformer block) form one group; every group gets exactly p different owners out of n workers. Results
// depend only on the problem: the same numbers and seed give the same owner sets on every machine.

#include <cstdint>
#include <vector>

#include "subnet/depth.h"
#include "subnet/slot_map.h"

namespace sdp {

/// `flops` and `bytes` may be in any unit of work and of memory: only ratios matter.
struct AssignmentProblem {
  int workers = 1;            ///< n
  int owners = 1;             ///< p, in 1..n
  std::vector<double> flops;  ///< by group; determines the step time
  std::vector<double> bytes;  ///< by group; determines a worker's memory
  uint64_t seed = 0;
  double flops_fixed = 0;  ///< of the shared part that every worker has in addition to its groups
  double bytes_fixed = 0;
  // assign_balanced counts largest loads as even if they are at most this share above the lowest that it
  // finds. Bytes have a small tolerance because the last fraction of a percent can prevent all mixing:
  // without it, loads that occur in equal pairs would split the workers into two halves that share nothing.
  double flops_tolerance = 0.05;
  double bytes_tolerance = 0.01;
  // Few unequal groups (ResNet-18's eight blocks) may mix badly at the lowest memory. Up to this share of
  // additional memory is accepted if lambda2 falls by at least twice the share. 0: none is accepted.
  double bytes_for_mixing = 0.15;
  /// Of assign_balanced: subnetworks that are whole come before all else.
  GroupDepth depth = {};
};

/// How even an assignment is. A ratio is 1 if all workers have equal loads; both ratios include the fixed
/// part.
struct Balance {
  double flops_max_over_mean = 1;
  double bytes_max_over_mean = 1;
  double lambda2_by_unit = 0;  ///< of the co-ownership matrix (subnet/spectral.h), all groups weighted by 1
};

/// Searches for the best assignment in lexicographic order: first the smallest shortfall of whole subnetworks
/// (subnet/depth.h) if `depth` is given, then the most even FLOPs, then the smallest largest bytes, then
/// the smallest lambda2 by unit. Loads within the problem's tolerances count as equal; bytes_for_mixing
/// allows more memory for a smaller lambda2.
///
/// The search starts from designs with a small lambda2, from greedy assignments, and from the window and
/// random assignments of the same problem; its result is never worse than those two. If `depth` is given, it
/// starts from assignments that are whole by construction instead of these two, and each start is first made
/// even in every stage, so that the result is whole. The effort is a fixed number of steps, a fraction of a
/// second in a Release build. This and the functions below throw std::logic_error for a problem outside the
/// limits above.
Owners assign_balanced(const AssignmentProblem& problem);

/// Assigns group i to workers i, i+1, .., i+p-1 modulo n.
Owners assign_window(const AssignmentProblem& problem);

/// Assigns every group to p workers drawn uniformly and independently. A worker may own no group.
Owners assign_random(const AssignmentProblem& problem);

Balance balance_of(const AssignmentProblem& problem, const Owners& owners);

// Balanced owner sets in neuron construction. The slices of one branch are alike, so each branch can be
// balanced separately: every worker owns p of every n slices, and its subnetwork is the full network at C
// times the width.

/// `family[group]`: groups of the same family are slices of the same branch, or of the branches of a block.
/// The groups of a family are consecutive.
///
/// Every n slices of a family get the n shifts of a spread base set (subnet/assignment_starts.h) with
/// permuted workers. The permutation is chosen from random ones for even FLOPs and for the most even
/// co-ownership with all previous families, which makes lambda2 small. Left-over slices, for example of a
/// branch with fewer slices than workers, go to the workers with the lowest FLOPs; with `equal_numbers`, to
/// those with the fewest slices of the family and then of all families. Nothing else depends on
/// `equal_numbers`. The result depends only on the arguments; `depth` is not used. Throws std::logic_error if
/// `family` does not have one entry per group.
Owners assign_balanced_slices(const AssignmentProblem& problem, const std::vector<int>& family,
                              bool equal_numbers = false);

}  // namespace sdp
