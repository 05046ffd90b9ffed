// What a step costs with the device kernels, as counted from captures: figures that may only shrink.

#include <string>
#include <string_view>

#include "catch.h"
#include "cost/layouts.h"
#include "real_step.h"

namespace sdp {
namespace {

struct Cost {
  double kernels = 0;            ///< calls of operators, each one kernel
  double bytes = 0;              ///< read and written by calls without products, for a sample
  std::string of_other_calls{};  ///< the operators without products, to read in a failure
};

void add(Cost& cost, const LayerGroupCapture& layer_group) {
  for (const PassCapture* pass : {&layer_group.forward, &layer_group.backward})
    for (const CapturedCall& call : pass->calls) {
      ++cost.kernels;
      if (!call.products.empty()) continue;
      cost.bytes += call.bytes.of(2) - call.bytes.of(1);
      cost.of_other_calls += call.op + "\n";
    }
}

StepCapture capture_of(std::string_view name, int64_t tokens, const Regime& regime, int64_t workers) {
  const StepShape step{.model = model_named(name),
                       .sequence_length = tokens,
                       .precision = Precision::kBf16,
                       .device_kernels = true};
  const SubnetPlan plan = plan_of(layout_of(step.model, tokens), regime, workers);
  return StepCaptures(step, plan).of(/*worker=*/0);
}

TEST_CASE("passes over the tokens of a LLaMA layer") {
  constexpr int64_t kTokens = 1024, kWidth = 2048, kBytes = 2;
  const StepCapture capture = capture_of("llama_1b", kTokens, kRegimes[0], 1);
  Cost layer;
  for (const size_t branch : {1, 2})  // attention and MLP of the first layer
    add(layer, *capture.layer_groups[branch].capture);
  INFO(layer.of_other_calls);
  CHECK(layer.bytes / (kTokens * kWidth * kBytes) < 51);
  CHECK(layer.kernels <= 37);
}

TEST_CASE("kernels of a step") {
  struct Case {
    std::string_view model;
    int64_t tokens;
    double dense, half;  ///< at C = 1 and 4/8
  };
  constexpr Regime kHalf{"4/8", Construction::kBlock, Masking::kForward};
  for (const Case& c : {Case{"resnet18", 1, 161, 109}, Case{"swin_t", 1, 1032, 504},
                        Case{"llama_134m", 1024, 470, 211}, Case{"llama_1b", 1024, 692, 359}}) {
    INFO(c.model);
    const auto kernels = [&](const Regime& regime) {
      Cost cost;
      for (const PlacedLayerGroup& layer_group : capture_of(c.model, c.tokens, regime, 8).layer_groups)
        add(cost, *layer_group.capture);
      return cost.kernels;
    };
    CHECK(kernels(kRegimes[0]) <= c.dense);
    CHECK(kernels(kHalf) <= c.half);
  }
}

}  // namespace
}  // namespace sdp
