// Proven properties of the gradient estimate, tested on the owner sets that this program draws. Let g_k be
// the gradient of worker k's batch for a unit, gbar their mean over n workers, and ghat the mean over the
// unit's p owners. That the engine computes ghat is tested in test/engine and in
// test/cli/test_equivalence.py.
//
// Owner sets here are drawn again for each step (`assign_random` with another seed), as in the paper's
// analysis; a run of this program draws them once, and its estimate is unbiased over the samples.

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "catch.h"
#include "subnet/assignment.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

AssignmentProblem equal_groups_problem(int workers, int owners, int groups, uint64_t seed = 0) {
  return {.workers = workers,
          .owners = owners,
          .flops = std::vector<double>(groups, 1),
          .bytes = std::vector<double>(groups, 1),
          .seed = seed};
}

double mean_over(const std::vector<int>& owners, const std::vector<double>& values) {
  double sum = 0;
  for (const int k : owners)
    sum += values[k];
  return sum / static_cast<double>(owners.size());
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// sum_k (value_k - mean)^2
double spread_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [&](double sum, double value) { return sum + (value - mean) * (value - mean); });
}

/// Variance of the mean of p values drawn from n without replacement (Cochran 1977, theorem 2.2).
double variance_of_estimate(const std::vector<double>& values, int owners) {
  const auto n = static_cast<double>(values.size());
  return (1 - owners / n) / owners * spread_of(values) / (n - 1);
}

std::vector<double> draw_normal(std::mt19937& random, int count) {
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values)
    value = normal(random);
  return values;
}

using DrawOwners = std::function<Owners(uint64_t seed)>;

struct Bias {
  double largest_z = 0;              ///< of the mean over draws, in standard errors
  double squared_over_expected = 0;  ///< mean of (ghat - gbar)^2 over its expectation
};

/// Statistics over many draws of all groups' owners.
Bias bias_of(const std::vector<std::vector<double>>& gradients, int owners, const DrawOwners& draw) {
  constexpr int kDraws = 4000;
  std::vector<double> sums(gradients.size());
  std::vector<double> squares(gradients.size());
  for (int d = 0; d < kDraws; ++d) {
    const Owners sets = draw(d);
    for (size_t u = 0; u < gradients.size(); ++u) {
      const double error = mean_over(sets[u], gradients[u]) - mean_of(gradients[u]);
      sums[u] += error / kDraws;
      squares[u] += error * error / kDraws;
    }
  }
  Bias bias;
  for (size_t u = 0; u < gradients.size(); ++u) {
    const double variance = variance_of_estimate(gradients[u], owners);
    bias.largest_z = std::max(bias.largest_z, std::abs(sums[u]) / std::sqrt(variance / kDraws));
    bias.squared_over_expected += squares[u] / variance / static_cast<double>(gradients.size());
  }
  return bias;
}

TEST_CASE("the estimate is unbiased under random masks") {
  constexpr int kWorkers = 8;
  constexpr int kGroups = 12;
  std::mt19937 random(1);
  std::vector<std::vector<double>> gradients(kGroups);
  for (std::vector<double>& gradient : gradients)
    gradient = draw_normal(random, kWorkers);
  const int owners = GENERATE(1, 2, 4, 7);
  const auto drawn = [&](uint64_t seed) {
    return assign_random(equal_groups_problem(kWorkers, owners, kGroups, seed));
  };
  const Bias bias = bias_of(gradients, owners, drawn);
  CHECK(bias.largest_z < 4.5);
  CHECK(std::abs(bias.squared_over_expected - 1) < 0.05);

  // A worker that always is one of the owners, and owners that stay the same, cause bias.
  const Bias favoured = bias_of(gradients, owners, [&](uint64_t seed) {
    Owners sets = drawn(seed);
    for (std::vector<int>& set : sets)
      if (std::find(set.begin(), set.end(), 0) == set.end()) set.front() = 0;
    return sets;
  });
  CHECK(favoured.largest_z > 10);
  const Bias constant = bias_of(gradients, owners, [&](uint64_t) { return drawn(0); });
  CHECK(constant.largest_z > 10);
}

/// A unit vector that K stretches by its second eigenvalue, where (1, .., 1) is the first eigenvector: power
/// iteration in its orthogonal complement.
std::vector<double> second_eigenvector(const std::vector<double>& k, int size, std::mt19937& random) {
  std::vector<double> x = draw_normal(random, size);
  for (int iteration = 0; iteration < 20000; ++iteration) {
    const double mean = mean_of(x);
    std::vector<double> y(size);
    for (int i = 0; i < size; ++i)
      for (int j = 0; j < size; ++j)
        y[i] += k[i * size + j] * (x[j] - mean);
    const double norm = std::sqrt(spread_of(y));
    for (int i = 0; i < size; ++i)
      x[i] = (y[i] - mean_of(y)) / norm;
  }
  return x;
}

/// Mean over groups of (ghat - gbar)^2 where all groups have the same gradients, divided by sum_k (g_k -
/// gbar)^2.
double relative_deviation(const Owners& sets, const std::vector<double>& gradients) {
  double sum = 0;
  for (const std::vector<int>& set : sets)
    sum += std::pow(mean_over(set, gradients) - mean_of(gradients), 2);
  return sum / static_cast<double>(sets.size()) / spread_of(gradients);
}

// The paper relates the deviation to the spectral gap of the masks; the constant is our interpretation of it.
// For a vector a of worker gradients that sums to 0, sum_u (ghat_u)^2 = a^T K a / p^2 for weights w_u = 1. If
// all workers own equally many of U groups, (1, .., 1) is the eigenvector of the largest eigenvalue U p^2 /
// n, so that the mean over units is at most lambda2 / n times |a|^2, with equality for the second
// eigenvector.
TEST_CASE("the deviation over all units is bounded by the spectral gap, and the bound is attained") {
  std::mt19937 random(2);
  const auto [workers, owners] =
      GENERATE(std::pair(4, 2), std::pair(8, 3), std::pair(8, 4), std::pair(12, 9));
  const AssignmentProblem problem = equal_groups_problem(workers, owners, 3 * workers);
  for (const Owners& sets : {assign_window(problem), assign_balanced(problem)}) {
    const std::vector<double> k = co_ownership(sets, std::vector<double>(sets.size(), 1), workers);
    const double bound = lambda2(k, workers) / workers;
    for (int draw = 0; draw < 200; ++draw)
      CHECK(relative_deviation(sets, draw_normal(random, workers)) <= bound * (1 + 1e-12));
    const double attained = relative_deviation(sets, second_eigenvector(k, workers, random));
    CHECK(std::abs(attained - bound) <= 1e-6 * bound);
    // The bound for a single unit, (1 - C) / p, also holds for the mean.
    const double coverage = static_cast<double>(owners) / workers;
    CHECK(bound <= (1 - coverage) / owners * (1 + 1e-12));
  }
}

}  // namespace
}  // namespace sdp
