#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "analysis/analysis.h"
#include "analysis/gradients.h"
#include "catch.h"
#include "message_of.h"
#include "spec/error.h"
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

int draw(std::mt19937& random, int first, int last) {
  return std::uniform_int_distribution<int>(first, last)(random);
}

/// Normal, heavy-tailed (Cauchy), or a common gradient with small noise, at any scale.
Gradients draw_gradients(std::mt19937& random, int workers, int dimension) {
  const int kind = draw(random, 0, 2);
  const double scale = std::pow(10.0, draw(random, -12, 12));
  const double noise = kind == 2 ? std::pow(10.0, draw(random, -6, -1)) : 1;
  std::normal_distribution<double> normal;
  std::cauchy_distribution<double> cauchy;
  std::vector<double> common(dimension, 0.0);
  if (kind == 2) std::ranges::generate(common, [&] { return normal(random); });
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

TEST_CASE("the deviation and its bound are those of the formula, and the bound holds, for any gradients") {
  std::mt19937 random(1);
  for (int set = 0; set < 3000; ++set) {
    const int workers = draw(random, 1, 12);
    std::vector<int> all(workers), owners;
    std::iota(all.begin(), all.end(), 0);
    std::ranges::sample(all, std::back_inserter(owners), draw(random, 1, workers), random);
    const Gradients gradients = draw_gradients(random, workers, draw(random, 1, 8));
    const Deviation found = deviation_of(gradients, owners);
    const Deviation expected = written_out(gradients, owners);
    // Values that fp64 cannot distinguish from 0 at this magnitude of gradients.
    const double rounding = 1e-30 * sum_of_squares(gradients);
    INFO("set " << set << ": " << found.squared << ", " << found.bound);
    REQUIRE(found.squared <= found.bound * (1 + 1e-7) + rounding);
    REQUIRE(std::abs(found.squared - expected.squared) <= 1e-7 * expected.squared + rounding);
    REQUIRE(std::abs(found.bound - expected.bound) <= 1e-7 * expected.bound + rounding);
    if (static_cast<int>(owners.size()) == workers) REQUIRE(found.bound == 0);
  }
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

TEST_CASE("the cosine of two vectors") {
  CHECK(cosine_between(tensor_of({1, 0}), tensor_of({2, 2})) == Approx(std::sqrt(0.5)).epsilon(1e-15));
  CHECK(cosine_between(tensor_of({3, 4}), tensor_of({-3, -4})) == Approx(-1).epsilon(1e-15));
  CHECK(cosine_between(tensor_of({1e-100, 0}), tensor_of({1e-100, 1e-100})) == Approx(std::sqrt(0.5)));
  CHECK(std::isnan(cosine_between(tensor_of({0, 0}), tensor_of({1, 1}))));
  // Sums in fp32 or bf16 over this many elements would not give 1.
  const at::Tensor ones = at::full({100'000}, 0.1, at::TensorOptions(at::kFloat).device(test_device()));
  CHECK(std::abs(cosine_between(ones, 3 * ones) - 1) < 1e-12);
}

TEST_CASE("means of several values, and of a layer's cosines over its workers, leave out what is missing") {
  const double missing = std::nan("");
  const Spread three = spread_of({1, missing, 2, 6});
  CHECK(three.mean == 3);
  CHECK(three.deviation == Approx(std::sqrt((4.0 + 1 + 9) / 2)));
  CHECK(spread_of({5}).mean == 5);
  CHECK(std::isnan(spread_of({5}).deviation));
  CHECK(std::isnan(spread_of({missing}).mean));
  const std::map<int, double> means = means_over_workers({{.depth = 0, .worker = 0, .cosine = {0.5}},
                                                          {.depth = 0, .worker = 1, .cosine = {missing}},
                                                          {.depth = 0, .worker = 2, .cosine = {-0.1}},
                                                          {.depth = 3, .worker = 1, .cosine = {missing}},
                                                          {.depth = 2, .worker = 1, .cosine = {1}}},
                                                         &LayerGradients::cosine);
  REQUIRE(means.size() == 3);
  CHECK(means.at(0) == Approx(0.2));
  CHECK(means.at(2) == 1);
  CHECK(std::isnan(means.at(3)));
}

ExperimentSpec small_spec(Construction construction, Masking masking) {
  ExperimentSpec spec;
  spec.model.kind = MlpSpec{.depth = 3};
  resolve_model(spec.model);
  spec.subnetwork.workers = 4;
  spec.subnetwork.coverage.text = "2/4";
  spec.subnetwork.construction = construction;
  spec.subnetwork.masking = masking;
  return spec;
}

TEST_CASE("regimes are found by their names; others are refused") {
  const std::vector<Regime> regimes = parse_regimes("bbsdp,nsdp", "--regimes");
  REQUIRE(regimes.size() == 2);
  CHECK((regimes[0] == Regime{Construction::kBlock, Masking::kBackward}));
  CHECK((regimes[1] == Regime{Construction::kNeuron, Masking::kForward}));
  CHECK((parse_regimes("nsdp,bsdp,bbsdp,nbsdp", "--regimes") == all_regimes()));
  for (const Regime regime : all_regimes())
    CHECK((parse_regimes(name_of(regime), "--regimes") == std::vector{regime}));
  for (const std::string names : {"csdp", "", "bsdp,", "b_sdp", "bsdp, nsdp", "B-SDP", "bsdp,nsdp,bsdp"})
    CHECK_THROWS_AS(parse_regimes(names, "--regimes"), UsageError);
}

TEST_CASE("owner sets from a file apply only to regimes of the file's construction") {
  ExperimentSpec spec = small_spec(Construction::kBlock, Masking::kForward);
  spec.subnetwork.assignment = Assignment::kFile;
  spec.subnetwork.assignment_file = "missing.json";
  const auto plan_in = [&](Construction construction) {
    return message_of<UsageError>([&] {
      plan_of_regime(spec, {construction, Masking::kBackward}, std::nullopt);
    });
  };
  CHECK_THAT(plan_in(Construction::kNeuron), Catch::Contains("of block construction"));
  CHECK_THAT(plan_in(Construction::kBlock), Catch::Contains("missing.json"));
}

}  // namespace
}  // namespace sdp
