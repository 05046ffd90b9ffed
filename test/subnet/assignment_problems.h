#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
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

/// Calls `visit` with every assignment of the groups.
inline void for_all_assignments(int workers, int owners, size_t groups,
                                const std::function<void(const Owners&)>& visit) {
  Owners sets;
  for (int bits = 0; bits < 1 << workers; ++bits) {
    std::vector<int> set;
    for (int worker = 0; worker < workers; ++worker)
      if (bits >> worker & 1) set.push_back(worker);
    if (static_cast<int>(set.size()) == owners) sets.push_back(set);
  }
  Owners chosen(groups);
  const std::function<void(size_t)> choose = [&](size_t group) {
    if (group == groups) return visit(chosen);
    for (const std::vector<int>& set : sets) {
      chosen[group] = set;
      choose(group + 1);
    }
  };
  choose(0);
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

/// Whether `balance` is no worse than `other` in the order of assign_balanced, without tolerance for bytes.
inline bool not_worse(const Balance& balance, const Balance& other) {
  constexpr double kRounding = 1e-9;
  if (balance.flops_max_over_mean > 1.05 * other.flops_max_over_mean + kRounding) return false;
  // `other` is uneven in FLOPs: no further comparison.
  if (other.flops_max_over_mean > 1.05 * balance.flops_max_over_mean) return true;
  if (balance.bytes_max_over_mean > other.bytes_max_over_mean + kRounding) return false;
  if (balance.bytes_max_over_mean < other.bytes_max_over_mean - kRounding) return true;
  return balance.lambda2_by_unit <= other.lambda2_by_unit + kRounding;
}

}  // namespace sdp::test
