#pragma once

// Which workers own which units. Units that must have the same owners (for example, the branches of a
// transformer block) form one group; every group gets its number of different owners out of n workers.
// Results depend only on the problem: the same numbers and seed give the same owner sets on every machine.

#include <cstdint>
#include <vector>

#include "subnet/depth.h"
#include "subnet/slot_map.h"

namespace sdp {

/// `flops` and `bytes` may be in any unit of work and of memory: only ratios matter.
struct AssignmentProblem {
  int workers = 1;            ///< n
  std::vector<int> owners;    ///< p by group, in 1..n; not used if depth.quotas is given
  std::vector<double> flops;  ///< by group; determines the step time
  std::vector<double> bytes;  ///< by group; determines a worker's memory
  uint64_t seed = 0;
  double flops_fixed = 0;  ///< of the shared part that every worker has in addition to its groups
  double bytes_fixed = 0;
  GroupDepth depth = {};
};

/// Largest FLOPs that count as even, relative to the lowest that the search finds. Slices are alike, so that
/// less is needed to mix them.
constexpr double kEvenFlops = 1.05;
constexpr double kEvenFlopsOfSlices = 1.02;
/// The same of bytes. Without a tolerance, loads that occur in equal pairs would split the workers into two
/// halves that share nothing.
constexpr double kEvenBytes = 1.01;
/// Few unequal groups (ResNet-18's eight blocks) may mix badly at the lowest memory. Up to this much memory
/// is accepted if lambda2 falls by at least twice as much.
constexpr double kEvenBytesForMixing = 1.15;

/// Searches for the best assignment in lexicographic order: first the smallest shortfall of whole subnetworks
/// (subnet/depth.h), then the most even FLOPs, then the smallest largest bytes, then the smallest lambda2 by
/// unit. Loads within the tolerances above count as equal.
///
/// The search starts from constructions (subnet/assignment_starts.h), and moves or exchanges owners as long
/// as this improves the assignment. The effort is a fixed number of steps, a fraction of a second in a
/// Release build; the largest problems are not searched but constructed. This and the functions below throw
/// std::logic_error for a problem outside the limits above.
Owners assign_balanced(const AssignmentProblem& problem);

/// Assigns group i to workers i, i+1, .., i+p-1 modulo n.
Owners assign_window(const AssignmentProblem& problem);

/// Assigns every group to p workers drawn uniformly and independently. A worker may own no group.
Owners assign_random(const AssignmentProblem& problem);

}  // namespace sdp
