#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "catch.h"
#include "subnet/assignment.h"
#include "subnet/random_bits.h"

namespace sdp::test {

inline AssignmentProblem random_problem(int workers, int owners, int groups, uint64_t seed) {
  AssignmentProblem problem{.workers = workers, .owners = owners, .flops = {}, .bytes = {}, .seed = seed};
  RandomBits random(seed);
  for (int i = 0; i < groups; ++i) {
    problem.flops.push_back(1 + random.below(1000));
    problem.bytes.push_back(1 + random.below(1000));
  }
  return problem;
}

/// `branches` of `slices` slices each; every other branch is three times as heavy.
inline AssignmentProblem sliced(int workers, int owners, int branches, int slices, std::vector<int>& family) {
  AssignmentProblem problem{.workers = workers, .owners = owners, .flops = {}, .bytes = {}, .seed = 5};
  family.clear();
  for (int branch = 0; branch < branches; ++branch) {
    for (int slice = 0; slice < slices; ++slice) {
      problem.flops.push_back(branch % 2 == 0 ? 1 : 3);
      problem.bytes.push_back(1);
      family.push_back(branch);
    }
  }
  return problem;
}

/// All groups in one stage, gaps of any length accepted: only the numbers of groups are to be even.
inline GroupDepth one_stage(const AssignmentProblem& problem) {
  const std::vector<int> zeros(problem.flops.size(), 0);
  return {zeros, zeros, /*longest_gap=*/1};
}

inline void check_owner_sets(const AssignmentProblem& problem, const Owners& owners) {
  REQUIRE(owners.size() == problem.flops.size());
  for (const std::vector<int>& set : owners) {
    REQUIRE(set.size() == static_cast<size_t>(problem.owners));
    CHECK(std::is_sorted(set.begin(), set.end()));
    CHECK(std::adjacent_find(set.begin(), set.end()) == set.end());
    CHECK(set.front() >= 0);
    CHECK(set.back() < problem.workers);
  }
}

/// The number of the groups [begin, end) that each worker owns.
inline std::vector<int> group_counts(const Owners& owners, size_t begin, size_t end, int workers) {
  std::vector<int> count(workers, 0);
  for (size_t group = begin; group < end; ++group)
    for (int worker : owners[group])
      ++count[worker];
  return count;
}

/// Largest minus smallest.
inline int spread(const std::vector<int>& counts) {
  const auto [smallest, largest] = std::minmax_element(counts.begin(), counts.end());
  return *largest - *smallest;
}

inline int spread(const Owners& owners, int workers) {
  return spread(group_counts(owners, 0, owners.size(), workers));
}

}  // namespace sdp::test
