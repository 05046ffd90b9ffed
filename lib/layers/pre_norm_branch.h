#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/branch.h"
#include "layers/model.h"
#include "layers/norms.h"

namespace sdp {

enum class Activation { kGelu, kTanhGelu, kRelu };

/// An attention or an MLP with LayerNorm before it and biases, without what lies between its two layers.
///
/// Letters: W width of the residual stream, D elements per head; of a part: H hidden neurons, N heads.
struct PreNormBranch {
  struct Style {
    double norm_eps = 1e-5;
    Activation activation = Activation::kGelu;  ///< of an MLP
    /// Weights are [in, out], as in transformers' Conv1D, instead of [out, in].
    bool has_transposed_weights = false;
  };
  /// Names behind that of the block; `norm` and `out` have a weight and a bias.
  struct Names {
    std::string_view norm, in_weight, in_bias, out;
  };
  /// In an attention: the layer for q, k and v of its heads, and the output projection. In an MLP: its two
  /// layers.
  struct Part {
    at::Tensor in_weight, in_bias;  // [3 N D, W], [3 N D]; or [H, W], [H]
    at::Tensor out_weight;          // [W, N D] or [W, H]
  };

  Style style;
  LayerNorm norm;
  at::Tensor output_bias;  // [W]
  std::vector<Part> parts;

  /// Binds the tensors of branch `branch`, whose names begin with `block`.
  static PreNormBranch bind(const TensorSource& source, int branch, const std::string& block,
                            const Names& names, const Style& style);

  /// The part's first layer: x [.., W] -> [.., 3 N D] or [.., H].
  at::Tensor in(const Part& part, const at::Tensor& x) const;
  /// The last layer: the sum over the parts, given what it reads of each of them, [.., N D] or [.., H]. There
  /// must be one.
  at::Tensor out(const std::function<at::Tensor(size_t part)>& hidden) const;
  /// The output of an MLP that has parts: x [.., W] -> [.., W].
  at::Tensor mlp(const at::Tensor& x) const;
  /// What the branch adds to x: the result of `forward` by run_branch, or the bias alone if there are no
  /// parts. Of x's shape.
  at::Tensor output(const at::Tensor& x, const Recipe& forward, const ForwardMode& mode) const;

 private:
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) const;
};

}  // namespace sdp
