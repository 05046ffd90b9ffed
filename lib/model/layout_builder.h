#pragma once

// Adds layers to a ModelLayout, with the parameters, buffers, initialization and FLOPs of PyTorch's layers of
// the same name.

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "subnet/layout.h"

namespace sdp {

inline constexpr SliceRule kRows{.dim = 0};
inline constexpr SliceRule kColumns{.dim = 1};

/// The branch that a layer belongs to, and how its output and input width follow from the branch's hidden
/// width.
struct LayerPlace {
  std::optional<int> branch = {};        ///< none: shared
  std::optional<SliceRule> output = {};  ///< rule of the output dimension (weight dim 0, bias, norm entries)
  std::optional<SliceRule> input = {};   ///< rule of the input dimension (weight dim 1)
  bool scales_branch_output = false;
  bool recomputed_if_frozen = false;  ///< a frozen layer is recomputed instead of saved
};

struct LinearOptions {
  bool bias = true;
  /// Initializer of the weight; the bias is then zeros. None: uniform(+-1/sqrt(in)) for both, as in
  /// torch.nn.Linear.
  std::optional<Initializer> init = {};
  bool input_needs_gradient = true;
};

class LayoutBuilder {
 public:
  int begin_branch(const std::string& name, int block, const StreamElements& stream, int64_t hidden_width,
                   int64_t granularity) {
    layout_.branches.push_back({.name = name,
                                .block = block,
                                .stream = stream,
                                .hidden_width = hidden_width,
                                .granularity = granularity});
    return static_cast<int>(layout_.branches.size()) - 1;
  }

  void parameter(const std::string& name, std::vector<int64_t> shape, ParameterRole role, Initializer init,
                 const LayerPlace& place, std::optional<SliceRule> slice) {
    layout_.parameters.push_back(
        {name, std::move(shape), role, init, place.branch, slice, place.scales_branch_output});
  }

  /// Convolution without bias; weight [out, in, k, k], Kaiming normal over fan-out as in torchvision's
  /// ResNet. `positions`: output pixels per sample. `first`: the input does not need a gradient.
  void convolution(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                   int64_t positions, const LayerPlace& place, bool first = false) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(kernel * kernel * out));
    parameter(name + ".weight", {out, in, kernel, kernel}, ParameterRole::kWeight,
              {Initializer::Kind::kNormal, deviation}, place, place.output ? place.output : place.input);
    operation({.kind = OperationKind::kConvolution,
               .rows = positions,
               .in = in,
               .out = out,
               .kernel = kernel,
               .stride = stride,
               .input_needs_gradient = !first},
              place);
  }

  /// Linear layer; weight [out, in], bias [out]. `positions`: vectors per sample that pass through it.
  void linear(const std::string& name, int64_t in, int64_t out, int64_t positions, const LayerPlace& place,
              const LinearOptions& options = {}) {
    const Initializer standard{Initializer::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))};
    parameter(name + ".weight", {out, in}, ParameterRole::kWeight, options.init.value_or(standard), place,
              place.output ? place.output : place.input);
    if (options.bias)
      parameter(name + ".bias", {out}, ParameterRole::kBias, options.init ? Initializer{} : standard, place,
                place.output);
    operation({.kind = OperationKind::kLinear,
               .rows = positions,
               .in = in,
               .out = out,
               .bias = options.bias,
               .input_needs_gradient = options.input_needs_gradient},
              place);
  }

  /// weight (ones). `positions`: vectors per sample, here and below.
  void rms_norm(const std::string& name, int64_t width, int64_t positions, const LayerPlace& place) {
    norm_weight(name, width, place);
    operation({.kind = OperationKind::kRmsNorm, .rows = positions, .in = width}, place);
  }

  /// weight (ones) and bias (zeros).
  void layer_norm(const std::string& name, int64_t width, int64_t positions, const LayerPlace& place) {
    norm_weight_and_bias(name, width, place);
    operation({.kind = OperationKind::kLayerNorm, .rows = positions, .in = width}, place);
  }

  /// weight (ones), bias (zeros) and running statistics.
  void batch_norm(const std::string& name, int64_t width, int64_t positions, const LayerPlace& place) {
    norm_weight_and_bias(name, width, place);
    operation({.kind = OperationKind::kBatchNorm, .rows = positions, .in = width}, place);
    layout_.buffers.push_back({name + ".running_mean", {width}, 0, place.branch, place.output});
    layout_.buffers.push_back({name + ".running_var", {width}, 1, place.branch, place.output});
  }

  /// Appends an operation of a layer. The place says which of its sizes is sliced, and whether a frozen part
  /// recomputes it.
  void operation(Operation operation, const LayerPlace& place) {
    operation.recomputed_if_frozen = place.recomputed_if_frozen;
    operation.sliced = place.input ? SlicedSize::kIn : SlicedSize::kNone;
    if (place.output)
      operation.sliced =
          has_product(operation.kind) && !is_attention(operation.kind) ? SlicedSize::kOut : SlicedSize::kIn;
    add(operation, place.branch);
  }

  /// Activations per sample that are saved for the backward pass, for the caller to add to. Without an
  /// argument: those of shared layers after the latest branch, or of the stem before the first one.
  ActivationSize& saved() {
    return layout_.branches.empty() ? layout_.stem_saved : layout_.branches.back().shared_saved;
  }
  BranchActivations& saved(int branch) { return layout_.branches[branch].saved; }

  ModelLayout take() { return std::move(layout_); }

 private:
  static bool is_attention(OperationKind kind) {
    return kind == OperationKind::kWindowAttention || kind == OperationKind::kCausalAttention;
  }
  void add(const Operation& operation, std::optional<int> index) {
    const Flops flops = flops_of(operation);
    if (!index) {
      (layout_.branches.empty() ? layout_.stem_operations : layout_.branches.back().shared_operations)
          .push_back(operation);
      layout_.shared_flops += flops;
      return;
    }
    BranchLayout& branch = layout_.branches[*index];
    branch.operations.push_back(operation);
    branch.flops += flops;
    if (operation.sliced == SlicedSize::kNone) branch.unsliced_flops += flops;
  }

  void norm_weight(const std::string& name, int64_t width, const LayerPlace& place) {
    parameter(name + ".weight", {width}, ParameterRole::kNorm, {Initializer::Kind::kConstant, 1}, place,
              place.output);
  }
  void norm_weight_and_bias(const std::string& name, int64_t width, const LayerPlace& place) {
    norm_weight(name, width, place);
    parameter(name + ".bias", {width}, ParameterRole::kNorm, {Initializer::Kind::kConstant, 0}, place,
              place.output);
  }

  ModelLayout layout_;
};

}  // namespace sdp
