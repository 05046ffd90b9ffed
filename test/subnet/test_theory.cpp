// Proven properties of the gradient estimate, tested on the owner sets that this program draws. Let g_k be
// the gradient of worker k's batch for a unit, gbar their mean over n workers, and ghat the mean over the
// unit's p owners. That the engine computes ghat is tested in test/engine and in
// test/cli/test_equivalence.py.
//
// Owner sets here are drawn again for each step (`assign_random` with another seed), as in the paper's
// analysis; a run of this program draws them once, and its estimate is unbiased over the samples.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "catch.h"
#include "subnet/assignment.h"
#include "subnet/assignment_starts.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

AssignmentProblem equal_groups_problem(int workers, int owners, int groups, uint64_t seed = 0) {
  return {.workers = workers,
          .owners = std::vector<int>(groups, owners),
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

std::vector<double> draw_normal(std::mt19937& random, int count) {
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values)
    value = normal(random);
  return values;
}

TEST_CASE("the estimate is unbiased under random masks") {
  constexpr int kWorkers = 8;
  constexpr int kGroups = 12;
  constexpr int kDraws = 4000;
  std::mt19937 random(1);
  const int owners = GENERATE(1, 2, 4, 7);
  std::vector<std::vector<double>> gradients(kGroups), errors(kGroups);
  for (std::vector<double>& gradient : gradients)
    gradient = draw_normal(random, kWorkers);
  for (int draw = 0; draw < kDraws; ++draw) {
    const Owners sets = assign_random(equal_groups_problem(kWorkers, owners, kGroups, draw));
    for (size_t u = 0; u < gradients.size(); ++u)
      errors[u].push_back(mean_over(sets[u], gradients[u]) - mean_of(gradients[u]));
  }
  double squared_over_expected = 0;
  for (size_t u = 0; u < gradients.size(); ++u) {
    // Of the mean of p values drawn from n without replacement (Cochran 1977, theorem 2.2).
    const double variance =
        (1 - static_cast<double>(owners) / kWorkers) / owners * spread_of(gradients[u]) / (kWorkers - 1);
    CHECK(std::abs(mean_of(errors[u])) < 4.5 * std::sqrt(variance / kDraws));
    const double squared = std::inner_product(errors[u].begin(), errors[u].end(), errors[u].begin(), 0.0);
    squared_over_expected += squared / kDraws / variance / kGroups;
  }
  CHECK(std::abs(squared_over_expected - 1) < 0.05);
}

/// The vector that K stretches by its second eigenvalue, where (1, .., 1) is the first eigenvector: a column
/// of a high power of K without its first part, by repeated squaring.
std::vector<double> second_eigenvector(std::vector<double> k, int size) {
  const double first = mean_of(k) * size;  // eigenvalue
  for (double& entry : k)
    entry -= first / size;
  for (int squaring = 0; squaring < 40; ++squaring) {
    std::vector<double> squared(k.size());
    for (int i = 0; i < size; ++i)
      for (int j = 0; j < size; ++j)
        squared[i * size + j] = std::inner_product(&k[i * size], &k[i * size] + size, &k[j * size], 0.0);
    const double largest = *std::max_element(squared.begin(), squared.end());
    std::transform(squared.begin(), squared.end(), k.begin(), [&](double x) { return x / largest; });
  }
  int longest = 0;  // row
  for (int i = 1; i < size; ++i)
    if (k[i * size + i] > k[longest * size + longest]) longest = i;
  return {k.begin() + longest * size, k.begin() + (longest + 1) * size};
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
  const auto [workers, owners] = GENERATE(std::pair(4, 2), std::pair(8, 3), std::pair(6, 4));
  const AssignmentProblem problem = equal_groups_problem(workers, owners, 3 * workers);
  for (const Owners& sets : {assign_window(problem), assign_balanced(problem)}) {
    const std::vector<double> k = co_ownership(sets, std::vector<double>(sets.size(), 1), workers);
    const double bound = lambda2(k, workers) / workers;
    for (int draw = 0; draw < 200; ++draw)
      CHECK(relative_deviation(sets, draw_normal(random, workers)) <= bound * (1 + 1e-12));
    const double attained = relative_deviation(sets, second_eigenvector(k, workers));
    CHECK(std::abs(attained - bound) <= 1e-6 * bound);
    // The bound for a single unit, (1 - C) / p, also holds for the mean.
    const double coverage = static_cast<double>(owners) / workers;
    CHECK(bound <= (1 - coverage) / owners * (1 + 1e-12));
  }
}

double lambda2_of(const Owners& sets, int workers) {
  return spectrum_of(sets, std::vector<double>(sets.size(), 1.0), workers).lambda2;
}

TEST_CASE("a matrix of many workers and few units has the eigenvalues of the units' overlaps") {
  // K = A^T A of 24 owner sets, of which A A^T counts the common owners; all other eigenvalues are 0. Such
  // sets are found for 12 blocks of two branches.
  constexpr int kWorkers = 1024, kUnits = 24;
  Owners owners(kUnits);
  for (int unit = 0; unit < kUnits; ++unit)
    for (int worker = 0; worker < kWorkers; ++worker)
      if ((worker >> (unit / 4) & 1) == unit % 2) owners[unit].push_back(worker);
  std::vector<double> overlaps;
  for (const std::vector<int>& a : owners)
    for (const std::vector<int>& b : owners) {
      std::vector<int> common;
      std::ranges::set_intersection(a, b, std::back_inserter(common));
      overlaps.push_back(static_cast<double>(common.size()));
    }
  std::vector<double> expected = symmetric_eigenvalues(overlaps, kUnits);
  const double largest = expected.front();
  expected.resize(kWorkers, 0);
  const std::vector<double> k = co_ownership(owners, std::vector<double>(kUnits, 1), kWorkers);
  const std::vector<double> found = symmetric_eigenvalues(k, kWorkers);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == Approx(expected[i]).epsilon(0).margin(1e-12 * largest));
}

TEST_CASE("co-ownership is the same whether it is counted or summed") {
  RandomBits random(5);
  for (const double unit : {1.0, 0.1}) {  // sums of tenths are not exact
    Owners owners;
    std::vector<double> weights;
    std::vector<double> expected(20 * 20, 0);
    for (int u = 0; u < 150; ++u) {
      owners.push_back(random_owners(20, 1 + random.below(20), random));
      weights.push_back(unit * (1 + random.below(3)));
      for (int k : owners.back())
        for (int l : owners.back())
          expected[static_cast<size_t>(k) * 20 + l] += weights.back();
    }
    CHECK(co_ownership(owners, weights, 20) == expected);
  }
}

TEST_CASE("parallel classes of hyperplanes: m classes have lambda2 = 1/m") {
  for (int n : {2, 4, 8, 16, 32}) {
    const Owners sets = affine_hyperplanes(n);
    REQUIRE(sets.size() == static_cast<size_t>(2 * (n - 1)));
    for (int classes = 1; classes < n; ++classes)
      CHECK(lambda2_of({sets.begin(), sets.begin() + 2 * classes}, n) ==
            Approx(1.0 / classes).epsilon(1e-12));
  }
  CHECK(affine_hyperplanes(6).empty());
}

TEST_CASE("one worker, no unit, everything owned by all, two halves") {
  CHECK(spectrum_of({{0}}, {1}, 1).lambda2 == 0);
  CHECK(spectrum_of({{0}}, {1}, 1).spectral_gap == 1);
  CHECK(spectrum_of(Owners{}, {}, 4).lambda2 == 0);
  CHECK(spectrum_of({{0, 1, 2}}, {5}, 3).lambda2 == Approx(0).margin(1e-14));
  CHECK(spectrum_of({{0, 1}, {2, 3}}, {1, 1}, 4).lambda2 == Approx(1).epsilon(1e-14));
  CHECK(spectrum_of({{0, 1}, {2, 3}}, {1, 3}, 4).lambda2 == Approx(1.0 / 3).epsilon(1e-14));
  CHECK(spectrum_of({{0, 1}, {2, 3}}, {1, 3}, 4).lambda2_normalized == Approx(1).epsilon(1e-14));
}

}  // namespace
}  // namespace sdp
