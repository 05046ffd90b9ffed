#include <cmath>

#include "analysis/figures.h"
#include "catch.h"

namespace sdp {
namespace {

const double kNone = std::nan("");

RegimeAnalysis analysis_of(Construction construction, int64_t step, Spread cosine) {
  RegimeAnalysis analysis;
  analysis.regime = {construction, Masking::kForward};
  analysis.step = step;
  analysis.cosine = cosine;
  return analysis;
}

}  // namespace

TEST_CASE("similarity over training is one line per regime, with a band over several batches") {
  const Figure figure = training_figure({analysis_of(Construction::kNeuron, 0, {0.5, 0.1}),
                                         analysis_of(Construction::kBlock, 0, {0.25, kNone}),
                                         analysis_of(Construction::kNeuron, 20, {0.75, 0.2}),
                                         analysis_of(Construction::kBlock, 20, {0.125, kNone})});
  REQUIRE(figure.series.size() == 2);
  const Series& neuron = figure.series[0];
  CHECK(neuron.name == "N-SDP");
  CHECK(neuron.x == std::vector<double>{0, 20});
  CHECK(neuron.y == std::vector<double>{0.5, 0.75});
  CHECK(neuron.y_error == std::vector<double>{0.1, 0.2});
  const Series& block = figure.series[1];
  CHECK(block.name == "B-SDP");
  CHECK(block.y == std::vector<double>{0.25, 0.125});
  CHECK(block.y_error.empty());
}

}  // namespace sdp
