#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <stdexcept>

#include "catch.h"
#include "subnet/assignment_starts.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

double lambda2_of(const Owners& sets, int workers) {
  return spectrum_of(sets, std::vector<double>(sets.size(), 1.0), workers).lambda2;
}

int64_t unevenness(const std::vector<int>& set, int workers) {
  std::vector<int64_t> count(workers, 0);
  for (int a : set)
    for (int b : set)
      if (a != b) ++count[(a - b + workers) % workers];
  int64_t squares = 0;
  for (int64_t of_difference : count)
    squares += of_difference * of_difference;
  return squares;
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

TEST_CASE("invalid matrices are refused") {
  CHECK_THROWS_AS(symmetric_eigenvalues({1, 2, 3}, 2), std::logic_error);
  CHECK_THROWS_AS(symmetric_eigenvalues({1, NAN, NAN, 1}, 2), std::logic_error);
  CHECK_THROWS_AS(co_ownership({{0, 2}}, {1.0}, 2), std::logic_error);
  CHECK_THROWS_AS(co_ownership({{0, 1}}, {1.0, 2.0}, 2), std::logic_error);
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

TEST_CASE("the lower bound on lambda2 is never above it, and close if there are enough steps") {
  RandomBits random(3);
  for (const int workers : {2, 5, 16, 130, 200}) {
    for (int draw = 0; draw < 3; ++draw) {
      const int units = 4 + random.below(3 * workers);
      Owners owners;
      std::vector<double> weights;
      for (int u = 0; u < units; ++u) {
        owners.push_back(random_owners(workers, std::max(1, workers / 2 - draw), random));
        weights.push_back(1 + random.below(3));
      }
      const std::vector<double> k = co_ownership(owners, weights, workers);
      const double exact = lambda2(k, workers);
      const double below = lambda2_from_below(k, workers);
      CHECK(below <= exact + 1e-12);
      CHECK(below >= 0.9 * exact - 1e-9);
    }
  }
  CHECK(lambda2_from_below(std::vector<double>(9, 0), 3) == 0);
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

TEST_CASE("no exchange of a single element spreads a base set more evenly") {
  RandomBits random(2);
  for (const auto& [workers, owners] : {std::pair{7, 3}, {8, 4}, {13, 4}, {24, 5}, {31, 15}, {40, 20}}) {
    const std::vector<int> set = spread_base_set(workers, owners, random);
    CHECK(std::set(set.begin(), set.end()).size() == static_cast<size_t>(owners));
    const int64_t found = unevenness(set, workers);
    for (size_t place = 0; place < set.size(); ++place) {
      for (int candidate = 0; candidate < workers; ++candidate) {
        if (std::binary_search(set.begin(), set.end(), candidate)) continue;
        std::vector<int> exchanged = set;
        exchanged[place] = candidate;
        CHECK(unevenness(exchanged, workers) >= found);
      }
    }
  }
}

TEST_CASE("a difference set is found if there is one, and reaches the bound") {
  RandomBits random(2);
  for (const auto& [n, p] : {std::pair{7, 3}, {13, 4}, {21, 5}}) {
    const Owners sets = cyclic_shifts(spread_base_set(n, p, random), n);
    CHECK(lambda2_of(sets, n) == Approx(double(n - p) / (p * (n - 1))).epsilon(1e-12));
  }
}

TEST_CASE("complements: lambda2(n-p) = lambda2(p) p^2 / (n-p)^2 with equal loads") {
  RandomBits random(3);
  for (int n : {5, 8, 16, 31}) {
    for (int p = 1; p < n; ++p) {
      const Owners sets = cyclic_shifts(random_owners(n, p, random), n);
      const double expected = lambda2_of(sets, n) * p * p / ((n - p) * (n - p));
      CHECK(lambda2_of(complements(sets, n), n) == Approx(expected).margin(1e-12));
    }
  }
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
