#include "layers/pre_norm_blocks.h"

#include <ATen/ATen.h>

#include <string>

#include "layers/transformer.h"

namespace sdp {

PreNormBlocks::PreNormBlocks(const PreNormStyle& style, int64_t blocks, int64_t head_size,
                             const DropRates& drop)
    : style_(style),
      head_size_(head_size),
      drop_(drop),
      branches_(static_cast<size_t>(branches_per_block() * blocks)) {}

void PreNormBlocks::bind(int branch, const TensorSource& source) {
  const std::string block = std::string(style_.blocks) + std::to_string(branch / branches_per_block()) + ".";
  branches_.at(branch) = PreNormBranch::bind(
      source, branch, block, is_attention(branch) ? style_.attention : style_.mlp, style_.branches);
}

at::Tensor PreNormBlocks::attention_forward(const PreNormBranch& branch, const at::Tensor& x) const {
  const at::Tensor normed = branch.norm(x);
  return branch.out([&](size_t part) {
    // With frozen weights, the products before and after the attention save nothing, and the attention saves
    // only what its own gradient needs.
    const std::vector<at::Tensor> qkv = branch.in(branch.parts[part], normed)
                                            .unflatten(-1, {3, -1, head_size_})
                                            .unbind(2);  // [B, T, N, D] each
    return attention(qkv[0], qkv[1], qkv[2], style_.is_causal);
  });
}

at::Tensor PreNormBlocks::forward(at::Tensor x, const ForwardMode& mode) const {
  const int branches = static_cast<int>(branches_.size());
  for (int i = 0; i < branches; ++i) {
    x = add_branch(i, x, mode, [&]() -> at::Tensor {
      if (!branches_[i]) return {};
      const auto forward = [this, i](const at::Tensor& input, bool) {
        return is_attention(i) ? attention_forward(*branches_[i], input) : branches_[i]->mlp(input);
      };
      return drop_randomly(branches_[i]->output(x, forward, mode), drop_, i, branches, mode);
    });
  }
  return x;
}

}  // namespace sdp
