#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace sdp {

// Letters in the comments: B batch, T tokens or patches, W width of the residual stream, D elements per head;
// of a part: H hidden neurons, N heads.

/// What distinguishes the blocks of one transformer from those of another.
struct PreNormStyle {
  /// Names behind that of the block; `norm` and `out` have a weight and a bias.
  struct Names {
    std::string_view norm, in_weight, in_bias, out;
  };
  std::string_view blocks;  ///< the name of a block without its number: "transformer.h."
  Names attention, mlp;
  double norm_eps = 1e-5;
  bool is_causal = true;
  std::string_view gelu = "none";  ///< at::gelu's approximation
  /// Weights are [in, out], as in transformers' Conv1D, instead of [out, in].
  bool has_transposed_weights = false;
};

/// Blocks of attention and an MLP with LayerNorm before each: x + attention(norm(x)), then x + mlp(norm(x)).
/// Branch 2 i is block i's attention, 2 i + 1 its MLP.
class PreNormBlocks {
 public:
  PreNormBlocks(const PreNormStyle& style, int64_t blocks, int64_t head_size, const DropRates& drop);
  void bind(int branch, const TensorSource& source);
  void unbind(int branch) { branches_.at(branch).reset(); }
  /// x [B, T, W]
  at::Tensor forward(at::Tensor x, const ForwardMode& mode) const;

 private:
  /// In an attention: the layer for q, k and v of its heads, and the output projection. In an MLP: its two
  /// layers.
  struct Part {
    at::Tensor in_weight, in_bias;  // [3 N D, W], [3 N D]; or [H, W], [H]
    at::Tensor out_weight;          // [W, N D] or [W, H]
  };
  struct Branch {
    at::Tensor norm_weight, norm_bias;  // [W], possibly of a wider type than the activations
    at::Tensor output_bias;             // [W]
    std::vector<Part> parts;
  };

  at::Tensor norm(const Branch& branch, const at::Tensor& x) const;
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) const;
  /// x [B, T, W] -> the branch's output, of x's shape, or [W] if there are no parts.
  at::Tensor attention_forward(const Branch& branch, const at::Tensor& x) const;
  at::Tensor mlp_forward(const Branch& branch, const at::Tensor& x) const;
  at::Tensor add_branch(int index, const at::Tensor& x, const ForwardMode& mode) const;

  const PreNormStyle style_;
  const int64_t head_size_;
  const DropRates drop_;
  std::vector<std::optional<Branch>> branches_;  ///< std::nullopt: not bound
};

}  // namespace sdp
