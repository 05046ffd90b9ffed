// What the branches of each model keep for the backward pass, from formulas written out by hand.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <valarray>
#include <vector>

#include "catch.h"
#include "model/swin_stages.h"
#include "real_step.h"

namespace sdp {
namespace {

/// Bytes that the steps of both workers keep, per sample.
int64_t kept_by_both(const StepShape& step, const Regime& regime) {
  const SubnetPlan plan = plan_of(structure_of(step.model, step.sequence_length), regime);
  int64_t kept = 0;
  for (const int worker : {0, 1})
    kept += allocated(step, plan, worker, 16).kept - allocated(step, plan, worker, 8).kept;
  return kept / 8;
}

/// Bytes that branches keep of one sample in fp32: what is not sliced, its parts; all of the branches if they
/// are frozen, their parts if these are.
using Kept = std::valarray<int64_t>;
enum { kWhole, kSlices, kFrozen, kFrozenSlices };

/// `rows` vectors of `width` elements.
int64_t matrix(int64_t rows, int64_t width) {
  return 4 * rows * width;
}

/// A branch that begins with a norm, which keeps its input and `statistics` of every vector. The layers after
/// it keep its result if they are trained.
struct Norm {
  int64_t rows, width, statistics;

  int64_t input() const { return matrix(rows, width); }
  int64_t kept() const { return input() + matrix(rows, statistics); }
  Kept attention(int64_t result, int64_t slices, int64_t frozen_slices) const {
    return {kept() + result, slices, kept() + frozen_slices, frozen_slices};
  }
  /// Frozen, it recomputes everything from its input.
  Kept mlp(int64_t slices) const { return {kept() + input(), slices, input(), 0}; }
};

Kept kept_by(const MlpSpec& spec, int64_t) {
  return *spec.depth * Norm{1, *spec.width, 2}.mlp(matrix(1, *spec.hidden_width));  // ReLU's result
}

/// q, k, v, the result, and a logarithm per head.
int64_t kept_by_causal_attention(int64_t tokens, int64_t heads, int64_t head_size) {
  return matrix(tokens, heads * (4 * head_size + 1));
}

Kept kept_by(const LlamaSpec& spec, int64_t tokens) {
  const Norm norm{tokens, *spec.width, 1};
  const int64_t attention = kept_by_causal_attention(tokens, *spec.heads, *spec.head_size);
  const int64_t mlp = matrix(tokens, 3 * *spec.hidden_width);  // gate, up, SwiGLU's result
  return *spec.depth * Kept(norm.attention(norm.input(), attention, attention) + norm.mlp(mlp));
}

Kept kept_by(const Gpt2Spec& spec, int64_t tokens) {
  const Norm norm{tokens, *spec.width, 2};
  const int64_t attention = kept_by_causal_attention(tokens, *spec.heads, *spec.width / *spec.heads);
  const int64_t mlp = matrix(tokens, 2 * *spec.hidden_width);  // GELU's input and result
  return *spec.depth * Kept(norm.attention(norm.input(), attention, attention) + norm.mlp(mlp));
}

Kept kept_by(const SwinSpec& spec, int64_t) {
  Kept sum(4);
  for (const SwinStage& stage : swin_stages(spec)) {
    const int64_t padded = stage.padded_size * stage.padded_size;
    const int64_t hidden = matrix(padded, stage.width);
    const int64_t probabilities = matrix(padded, stage.window_positions() * stage.heads);
    const Norm norm{stage.size * stage.size, stage.width, 2};
    const Kept attention = norm.attention(hidden, 4 * hidden + probabilities, 3 * hidden);  // q, k, v, result
    const Kept mlp = norm.mlp(2 * kSwinMlpRatio * norm.input());  // GELU's input and result
    sum += int64_t{stage.blocks} * Kept(attention + mlp);
  }
  return sum;
}

/// The result of the ReLU before a block is kept by the projection. Without one, the branch keeps it if its
/// first convolution is trained, and otherwise its signs, in bits.
Kept with_input(Kept kept, int64_t input, bool projects) {
  if (!projects) kept += Kept{input, 0, input / 32, 0};
  return kept;
}

Kept kept_by(const ResNetSpec& spec, int64_t) {
  Kept sum(4);
  for (int block = 0; block < 8; ++block) {
    const bool projects = block > 0 && block % 2 == 0;
    const int64_t side = *spec.image_size >> block / 2;
    const int64_t hidden = matrix(side * side, *spec.width << block / 2);
    // The inputs of both BatchNorms, and ReLU's result, which a frozen branch recomputes.
    sum += with_input({hidden, 2 * hidden, 2 * hidden, hidden}, hidden, projects);
  }
  return sum;
}

Kept kept_by(const ResNet50Spec& spec, int64_t) {
  Kept sum(4);
  int64_t side = *spec.image_size;
  constexpr std::array kBlocks = {3, 4, 6, 3};
  for (size_t stage = 0; stage < kBlocks.size(); ++stage)
    for (int i = 0; i < kBlocks[stage]; ++i) {
      const int64_t width = *spec.width << stage;
      const int64_t first = matrix(side * side, width);  // of the first BatchNorm, before the stride
      if (stage > 0 && i == 0) side /= 2;
      const int64_t hidden = matrix(side * side, width), out = 4 * hidden;
      // The inputs of the three BatchNorms, and the results of both ReLUs, which a frozen branch recomputes.
      sum += with_input({2 * first + out, 2 * hidden, first + hidden + out, hidden}, out, i == 0);
    }
  return sum;
}

/// What is outside the branches is in both workers.
template <class Spec>
void check_branches(const char* name) {
  const StepShape step{.model = tiny_model(name), .sequence_length = 24};
  std::vector<int64_t> kept;
  for (const Regime& regime : kRegimes)
    kept.push_back(kept_by_both(step, regime));
  const Kept expected = kept_by(step.model.kind.as<Spec>(), step.sequence_length);
  INFO(name);
  CHECK(kept[0] - kept[1] == expected[kWhole] + expected[kSlices]);  // dense, branches
  CHECK(kept[2] - kept[1] == expected[kFrozen]);                     // the other branches frozen
  CHECK(kept[3] - kept[1] == expected[kWhole]);                      // slices
  CHECK(kept[4] - kept[3] == expected[kFrozenSlices]);
}

TEST_CASE("branches keep what their gradients need, and frozen ones less") {
  count_allocations(at::kCPU);
  check_branches<MlpSpec>("mlp");
  check_branches<LlamaSpec>("llama_tiny");
  check_branches<Gpt2Spec>("gpt2");
  check_branches<SwinSpec>("swin_t");
  check_branches<ResNetSpec>("resnet18");
  check_branches<ResNet50Spec>("resnet50");
}

// What a step costs with the device kernels, as counted from captures: figures that may only shrink.

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
