#pragma once

// Adds layers to a ModelLayout with the parameters, buffers, initialisation, FLOPs and kept activations that
// PyTorch's layers of the same name have.

#include <cmath>
#include <optional>
#include <string>

#include "subnet/layout.h"

namespace sdp {

/// Where a layer belongs and how its output and input width follow from the branch's hidden width.
struct LayerPlace {
  std::optional<int> branch;        ///< none: shared
  std::optional<SliceRule> output;  ///< rule of the output dimension (weight dim 0, bias, norm entries)
  std::optional<SliceRule> input;   ///< rule of the input dimension (weight dim 1)
  bool scales_branch_output = false;
};

class LayoutBuilder {
 public:
  explicit LayoutBuilder(std::string name) { layout_.name = std::move(name); }

  int begin_branch(const std::string& name, int block, int64_t hidden_width) {
    layout_.branches.push_back({.name = name, .block = block, .hidden_width = hidden_width, .flops = {}});
    return static_cast<int>(layout_.branches.size()) - 1;
  }

  /// Convolution without bias; weight [out, in, k, k], Kaiming normal over fan-out as torchvision's ResNet.
  /// `positions`: output pixels. `first`: its input needs no gradient.
  void convolution(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t positions,
                   const LayerPlace& place, bool first = false) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(kernel * kernel * out));
    add(name + ".weight", {out, in, kernel, kernel}, ParameterRole::kWeight,
        {Initializer::Kind::kNormal, deviation}, place, place.output ? place.output : place.input);
    add_flops(2.0 * static_cast<double>(out * in * kernel * kernel * positions), place, first);
  }

  /// Linear layer with bias; weight [out, in]; uniform(+-1/sqrt(in)) as torch.nn.Linear.
  void linear(const std::string& name, int64_t in, int64_t out, const LayerPlace& place, bool first = false) {
    const Initializer init{Initializer::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))};
    add(name + ".weight", {out, in}, ParameterRole::kWeight, init, place,
        place.output ? place.output : place.input);
    add(name + ".bias", {out}, ParameterRole::kBias, init, place, place.output);
    add_flops(2.0 * static_cast<double>(in * out), place, first);
  }

  /// weight (ones) and bias (zeros) of BatchNorm or LayerNorm.
  void norm(const std::string& name, int64_t width, const LayerPlace& place) {
    add(name + ".weight", {width}, ParameterRole::kNorm, {Initializer::Kind::kConstant, 1}, place,
        place.output);
    add(name + ".bias", {width}, ParameterRole::kNorm, {Initializer::Kind::kConstant, 0}, place,
        place.output);
  }

  void batch_norm(const std::string& name, int64_t width, const LayerPlace& place) {
    norm(name, width, place);
    layout_.buffers.push_back({name + ".running_mean", {width}, 0, place.branch, place.output});
    layout_.buffers.push_back({name + ".running_var", {width}, 1, place.branch, place.output});
  }

  /// Elements a sample that stay until the backward pass.
  void keep_shared(int64_t elements) { layout_.shared_activation_elements += static_cast<double>(elements); }
  void keep_hidden(int branch, int64_t elements) {
    layout_.branches[branch].activation_elements += static_cast<double>(elements);
  }
  void keep_with_branch(int branch, int64_t elements) {
    layout_.branches[branch].activation_elements_any += static_cast<double>(elements);
  }

  ModelLayout take() { return std::move(layout_); }

 private:
  void add(const std::string& name, std::vector<int64_t> shape, ParameterRole role, Initializer init,
           const LayerPlace& place, std::optional<SliceRule> slice) {
    layout_.parameters.push_back(
        {name, std::move(shape), role, init, place.branch, slice, place.scales_branch_output});
  }

  void add_flops(double forward, const LayerPlace& place, bool first) {
    const Flops flops{forward, forward, first ? 0 : forward};
    (place.branch ? layout_.branches[*place.branch].flops : layout_.shared_flops) += flops;
  }

  ModelLayout layout_;
};

}  // namespace sdp
