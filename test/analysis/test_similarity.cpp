#include <ATen/ATen.h>

#include <cmath>

#include "analysis/gradients.h"
#include "catch.h"
#include "test_device.h"

namespace sdp {
namespace {

const double kMissing = std::nan("");

at::Tensor vector_of(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).to(test_device());
}

TEST_CASE("the cosine of two vectors") {
  CHECK(cosine_between(vector_of({1, 0}), vector_of({2, 2})) == Approx(std::sqrt(0.5)).epsilon(1e-15));
  CHECK(cosine_between(vector_of({3, 4}), vector_of({-3, -4})) == Approx(-1).epsilon(1e-15));
  CHECK(cosine_between(vector_of({1e-100, 0}), vector_of({1e-100, 1e-100})) == Approx(std::sqrt(0.5)));
  CHECK(std::isnan(cosine_between(vector_of({0, 0}), vector_of({1, 1}))));
  // Sums in fp32 or bf16 over this many elements would not give 1.
  const at::Tensor ones = at::full({100'000}, 0.1, at::TensorOptions(at::kFloat).device(test_device()));
  CHECK(std::abs(cosine_between(ones, 3 * ones) - 1) < 1e-12);
}

TEST_CASE("mean and standard deviation of several values") {
  const Spread three = spread_of({1, kMissing, 2, 6});
  CHECK(three.mean == 3);
  CHECK(three.deviation == Approx(std::sqrt((4.0 + 1 + 9) / 2)));
  CHECK(spread_of({5}).mean == 5);
  CHECK(std::isnan(spread_of({5}).deviation));
  CHECK(std::isnan(spread_of({kMissing}).mean));
}

TEST_CASE("a layer's cosines are averaged over its workers") {
  const std::map<int, double> means = means_over_workers({{.depth = 0, .worker = 0, .cosine = {0.5}},
                                                          {.depth = 0, .worker = 1, .cosine = {kMissing}},
                                                          {.depth = 0, .worker = 2, .cosine = {-0.1}},
                                                          {.depth = 3, .worker = 1, .cosine = {kMissing}},
                                                          {.depth = 2, .worker = 1, .cosine = {1}}},
                                                         &LayerGradients::cosine);
  REQUIRE(means.size() == 3);
  CHECK(means.at(0) == Approx(0.2));
  CHECK(means.at(2) == 1);
  CHECK(std::isnan(means.at(3)));
}

}  // namespace
}  // namespace sdp
