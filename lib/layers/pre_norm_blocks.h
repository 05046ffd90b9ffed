#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "layers/drop_rates.h"
#include "layers/model.h"
#include "layers/pre_norm_branch.h"

namespace sdp {

/// What distinguishes the blocks of one transformer from those of another.
struct PreNormStyle {
  std::string_view blocks;              ///< the name of a block without its number: "transformer.h."
  PreNormBranch::Names attention = {};  ///< empty: blocks consist of an MLP alone
  PreNormBranch::Names mlp;
  bool is_causal = true;
  PreNormBranch::Style branches;
};

/// Blocks of attention and an MLP with LayerNorm before each: x + attention(norm(x)), then x + mlp(norm(x)).
/// Branch 2 i is block i's attention, 2 i + 1 its MLP; or branch i is the MLP, where there is no attention.
class PreNormBlocks {
 public:
  PreNormBlocks(const PreNormStyle& style, int64_t blocks, int64_t head_size, const DropRates& drop);
  void bind(int branch, const TensorSource& source);
  void unbind(int branch) { branches_.at(branch).reset(); }
  /// x [B, T, W]: B batch, T tokens or patches, W width of the residual stream. Without attention [.., W].
  at::Tensor forward(at::Tensor x, const ForwardMode& mode) const;

 private:
  int branches_per_block() const { return style_.attention.norm.empty() ? 1 : 2; }
  bool is_attention(int branch) const { return branches_per_block() == 2 && branch % 2 == 0; }
  at::Tensor attention_forward(const PreNormBranch& branch, const at::Tensor& x) const;

  const PreNormStyle style_;
  const int64_t head_size_;
  const DropRates drop_;
  std::vector<std::optional<PreNormBranch>> branches_;  ///< std::nullopt: not bound
};

}  // namespace sdp
