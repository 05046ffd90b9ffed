// What a step costs with the device kernels, as counted from captures: figures that may only shrink.

#include <algorithm>
#include <string>
#include <string_view>

#include "catch.h"
#include "real_step.h"

namespace sdp {
namespace {

struct Cost {
  double kernels = 0;            ///< calls of operators, each one kernel
  double bytes = 0;              ///< read and written by calls without products, for a sample
  std::string of_other_calls{};  ///< the operators without products, to read in a failure
};

/// Of the layer groups [begin, end) of the first worker's step.
Cost cost_of(std::string_view name, int64_t tokens, const Regime& regime, int64_t workers, size_t begin = 0,
             size_t end = SIZE_MAX) {
  const StepShape step{.model = model_named(name),
                       .sequence_length = tokens,
                       .precision = Precision::kBf16,
                       .device_kernels = true};
  const SubnetPlan plan = plan_of(structure_of(step.model, tokens), regime, workers);
  const StepCapture capture = StepCaptures(step, plan).of(/*worker=*/0);
  Cost cost;
  for (size_t group = begin; group < std::min(end, capture.layer_groups.size()); ++group)
    for (const PassCapture* pass :
         {&capture.layer_groups[group]->forward, &capture.layer_groups[group]->backward})
      for (const CapturedCall& call : pass->calls) {
        ++cost.kernels;
        if (!call.products.empty()) continue;
        cost.bytes += call.bytes.of(2) - call.bytes.of(1);
        cost.of_other_calls += call.op + "\n";
      }
  return cost;
}

TEST_CASE("passes over the tokens of a LLaMA layer") {
  constexpr int64_t kTokens = 1024, kWidth = 2048, kBytes = 2;
  const Cost layer = cost_of("llama_1b", kTokens, kRegimes[0], 1, 1, 3);  // the first attention and MLP
  INFO(layer.of_other_calls);
  CHECK(layer.bytes / (kTokens * kWidth * kBytes) < 51);
  CHECK(layer.kernels <= 37);
}

TEST_CASE("kernels of a step") {
  constexpr Regime kHalf{"4/8", Construction::kBlock, Masking::kForward};
  struct Case {
    std::string_view model;
    int64_t tokens;
    double dense, half;  ///< at C = 1 and 4/8
  };
  for (const auto& [model, tokens, dense, half] :
       {Case{"resnet18", 1, 161, 109}, Case{"swin_t", 1, 1032, 504}, Case{"llama_134m", 1024, 470, 211}}) {
    INFO(model);
    CHECK(cost_of(model, tokens, kRegimes[0], 8).kernels <= dense);
    CHECK(cost_of(model, tokens, kHalf, 8).kernels <= half);
  }
}

}  // namespace
}  // namespace sdp
