#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "analysis/gradients.h"
#include "catch.h"
#include "test_device.h"

namespace sdp {
namespace {

using Gradients = std::vector<std::vector<double>>;  ///< by worker

at::Tensor tensor_of(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).to(test_device());
}

Deviation deviation_of(const Gradients& gradients, const std::vector<int>& owners) {
  DeviationSum sum(owners, static_cast<int>(gradients.size()));
  for (const std::vector<double>& gradient : gradients)
    sum.add(tensor_of(gradient), tensor_of(gradient));
  return sum.result();
}

/// Both sides of the inequality as the formula defines them, in two passes.
Deviation written_out(const Gradients& gradients, const std::vector<int>& owners) {
  const size_t n = gradients.size();
  const size_t p = owners.size();
  long double squared = 0;
  long double spread = 0;
  for (size_t i = 0; i < gradients.front().size(); ++i) {
    long double mean = 0;
    for (const std::vector<double>& gradient : gradients)
      mean += gradient[i] / static_cast<long double>(n);
    long double estimate = 0;
    for (const int owner : owners)
      estimate += gradients[owner][i] / static_cast<long double>(p);
    squared += (estimate - mean) * (estimate - mean);
    for (const std::vector<double>& gradient : gradients)
      spread += (gradient[i] - mean) * (gradient[i] - mean);
  }
  const long double coverage = static_cast<long double>(p) / static_cast<long double>(n);
  return {.squared = static_cast<double>(squared),
          .bound = static_cast<double>((1 - coverage) / static_cast<long double>(p) * spread)};
}

std::vector<int> draw_owners(std::mt19937& random, int workers, int owners) {
  std::vector<int> all(workers);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(owners);
  std::sort(all.begin(), all.end());
  return all;
}

int draw(std::mt19937& random, int first, int last) {
  return std::uniform_int_distribution<int>(first, last)(random);
}

/// Normal, heavy-tailed (Cauchy), or a common gradient with small noise, at any scale.
Gradients draw_gradients(std::mt19937& random, int workers, int dimension) {
  const int kind = draw(random, 0, 2);
  const double scale = std::pow(10.0, draw(random, -12, 12));
  std::normal_distribution<double> normal;
  std::cauchy_distribution<double> cauchy;
  std::vector<double> common(dimension, 0.0);
  const double noise = kind == 2 ? std::pow(10.0, draw(random, -6, -1)) : 1;
  if (kind == 2)
    for (double& value : common)
      value = normal(random);
  Gradients gradients(workers, common);
  for (std::vector<double>& gradient : gradients)
    for (double& value : gradient)
      value = scale * (value + noise * (kind == 1 ? cauchy(random) : normal(random)));
  return gradients;
}

double sum_of_squares(const Gradients& gradients) {
  double sum = 0;
  for (const std::vector<double>& gradient : gradients)
    for (const double value : gradient)
      sum += value * value;
  return sum;
}

TEST_CASE("the bound holds for any gradients and equals that of the formula") {
  std::mt19937 random(1);
  int violations = 0;
  int differences = 0;
  for (int set = 0; set < 10'000; ++set) {
    const int workers = draw(random, 1, 12);
    const std::vector<int> owners = draw_owners(random, workers, draw(random, 1, workers));
    const Gradients gradients = draw_gradients(random, workers, draw(random, 1, 8));
    const Deviation found = deviation_of(gradients, owners);
    const Deviation expected = written_out(gradients, owners);
    // Values that fp64 cannot distinguish from 0 at this magnitude of gradients.
    const double rounding = 1e-30 * sum_of_squares(gradients);
    if (found.squared > found.bound * (1 + 1e-9) + rounding) ++violations;
    if (std::abs(found.squared - expected.squared) > 1e-7 * expected.squared + rounding) ++differences;
    if (std::abs(found.bound - expected.bound) > 1e-7 * expected.bound + rounding) ++differences;
    if (static_cast<int>(owners.size()) == workers && found.bound != 0) ++differences;
  }
  CHECK(violations == 0);
  CHECK(differences == 0);
}

// In this case g_k - gbar is proportional to the weights of ghat - gbar: 1/p - 1/n for owners, -1/n for
// others.
TEST_CASE("the bound is attained where all owners have one gradient and all others another") {
  std::mt19937 random(2);
  for (int set = 0; set < 200; ++set) {
    const int workers = draw(random, 2, 12);
    const std::vector<int> owners = draw_owners(random, workers, draw(random, 1, workers - 1));
    const Gradients two = draw_gradients(random, 2, 5);
    Gradients gradients(workers, two[0]);
    for (const int owner : owners)
      gradients[owner] = two[1];
    // Two nearly equal gradients leave fewer digits in their difference.
    const double digits_lost = sum_of_squares(two) / deviation_of(two, {0}).bound;
    CHECK(std::abs(deviation_of(gradients, owners).ratio() - 1) <= 1e-12 + 1e-15 * std::sqrt(digits_lost));
  }
  // Gradients that differ only among the owners do not move their mean.
  CHECK(deviation_of({{1}, {-1}, {0}, {0}}, {0, 1}).squared == 0);
}

TEST_CASE("the gradient that an owner contributes may differ from the one by which it is measured") {
  DeviationSum sum(std::vector{1}, 2);
  sum.add(tensor_of({1, 0}), at::Tensor());
  sum.add(tensor_of({3, 0}), tensor_of({2, 4}));
  // gbar = (2, 0), ghat = (2, 4); the spread is 2 and (1 - C)/p is 1/2.
  CHECK(sum.result().squared == Approx(16));
  CHECK(sum.result().bound == Approx(1));
  CHECK(sum.result().ratio() == Approx(16));
}

TEST_CASE("sums of half types are kept in fp32") {
  DeviationSum sum(std::vector{0}, 3);
  for (const double value : {256.0, 1.0, 1.0}) {
    const at::Tensor gradient = at::full({1}, value, at::TensorOptions(at::kBFloat16).device(test_device()));
    sum.add(gradient, gradient);
  }
  CHECK(sum.result().squared == Approx(170.0 * 170.0).epsilon(1e-6));
  CHECK(sum.result().ratio() == Approx(1).epsilon(1e-6));
}

TEST_CASE("the ratio at full coverage, and too many or too few gradients") {
  CHECK(std::isnan(deviation_of({{1}, {2}}, {0, 1}).ratio()));
  DeviationSum sum(std::vector{0}, 2);
  sum.add(tensor_of({1}), tensor_of({1}));
  CHECK_THROWS_AS(sum.result(), std::logic_error);
  sum.add(tensor_of({1}), tensor_of({1}));
  CHECK_THROWS_AS(sum.add(tensor_of({1}), tensor_of({1})), std::logic_error);
}

}  // namespace
}  // namespace sdp
