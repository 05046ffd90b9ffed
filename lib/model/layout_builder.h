#pragma once

// Adds layers to a ModelLayout, with the parameters, buffers and initialization of PyTorch's layers of the
// same name.

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "subnet/layout.h"

namespace sdp {

/// Slices of neurons and channels begin at multiples of this (BranchLayout::granularity).
inline constexpr int64_t kNeuronGranularity = 8;

inline constexpr SliceRule kRows{.dim = 0};
inline constexpr SliceRule kColumns{.dim = 1};

/// The branch that a layer belongs to, and how its output and input width follow from the branch's hidden
/// width.
struct LayerPlace {
  std::optional<int> branch = {};        ///< none: shared
  std::optional<SliceRule> output = {};  ///< rule of the output dimension (weight dim 0, bias, norm entries)
  std::optional<SliceRule> input = {};   ///< rule of the input dimension (weight dim 1)
  bool scales_branch_output = false;
};

struct LinearOptions {
  bool bias = true;
  /// Initializer of the weight; the bias is then zeros. None: uniform(+-1/sqrt(in)) for both, as in
  /// torch.nn.Linear.
  std::optional<Initializer> init = {};
};

class LayoutBuilder {
 public:
  /// `kind`: as in BranchLayout.
  int begin_branch(const std::string& name, int block, const StreamElements& stream, int64_t hidden_width,
                   int64_t granularity, const std::string& kind = "") {
    layout_.branches.push_back({.name = name,
                                .kind = kind,
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
  /// ResNet.
  void convolution(const std::string& name, int64_t in, int64_t out, int64_t kernel,
                   const LayerPlace& place) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(kernel * kernel * out));
    parameter(name + ".weight", {out, in, kernel, kernel}, ParameterRole::kWeight,
              {Initializer::Kind::kNormal, deviation}, place, place.output ? place.output : place.input);
  }

  /// Linear layer; weight [out, in], bias [out].
  void linear(const std::string& name, int64_t in, int64_t out, const LayerPlace& place,
              const LinearOptions& options = {}) {
    const Initializer standard{Initializer::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))};
    parameter(name + ".weight", {out, in}, ParameterRole::kWeight, options.init.value_or(standard), place,
              place.output ? place.output : place.input);
    if (options.bias)
      parameter(name + ".bias", {out}, ParameterRole::kBias, options.init ? Initializer{} : standard, place,
                place.output);
  }

  /// weight (ones).
  void rms_norm(const std::string& name, int64_t width, const LayerPlace& place) {
    parameter(name + ".weight", {width}, ParameterRole::kNorm, {Initializer::Kind::kConstant, 1}, place,
              place.output);
  }

  /// weight (ones) and bias (zeros).
  void layer_norm(const std::string& name, int64_t width, const LayerPlace& place) {
    rms_norm(name, width, place);
    parameter(name + ".bias", {width}, ParameterRole::kNorm, {Initializer::Kind::kConstant, 0}, place,
              place.output);
  }

  /// weight (ones), bias (zeros) and running statistics.
  void batch_norm(const std::string& name, int64_t width, const LayerPlace& place) {
    layer_norm(name, width, place);
    layout_.buffers.push_back({name + ".running_mean", {width}, 0, place.branch, place.output});
    layout_.buffers.push_back({name + ".running_var", {width}, 1, place.branch, place.output});
  }

  ModelLayout take() { return std::move(layout_); }

 private:
  ModelLayout layout_;
};

}  // namespace sdp
