#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "catch.h"
#include "subnet/assignment_starts.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

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
