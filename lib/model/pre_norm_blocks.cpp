#include "model/pre_norm_blocks.h"

#include <ATen/ATen.h>

#include <string>

#include "model/branch.h"
#include "model/transformer.h"

namespace sdp {

PreNormBlocks::PreNormBlocks(const PreNormStyle& style, int64_t blocks, int64_t head_size,
                             const DropRates& drop)
    : style_(style), head_size_(head_size), drop_(drop), branches_(static_cast<size_t>(2 * blocks)) {}

void PreNormBlocks::bind(int branch, const TensorSource& source) {
  const PreNormStyle::Names& names = branch % 2 == 0 ? style_.attention : style_.mlp;
  const std::string block = std::string(style_.blocks) + std::to_string(branch / 2) + ".";
  const std::string norm = block + std::string(names.norm), out = block + std::string(names.out);
  Branch bound{.norm_weight = source.parameter(norm + ".weight"),
               .norm_bias = source.parameter(norm + ".bias"),
               .output_bias = source.parameter(out + ".bias"),
               .parts = {}};
  for (int part = 0; part < source.parts(branch); ++part)
    bound.parts.push_back({.in_weight = source.parameter(block + std::string(names.in_weight), part),
                           .in_bias = source.parameter(block + std::string(names.in_bias), part),
                           .out_weight = source.parameter(out + ".weight", part)});
  branches_.at(branch) = std::move(bound);
}

at::Tensor PreNormBlocks::norm(const Branch& branch, const at::Tensor& x) const {
  return layer_norm(x, branch.norm_weight, branch.norm_bias, style_.norm_eps);
}

at::Tensor PreNormBlocks::linear(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias) const {
  if (!style_.has_transposed_weights) return at::linear(x, weight, bias);
  const at::Tensor rows = x.flatten(0, 1);
  const at::Tensor out = bias.defined() ? at::addmm(bias, rows, weight) : rows.mm(weight);
  return out.unflatten(0, x.sizes().slice(0, 2));
}

at::Tensor PreNormBlocks::attention_forward(const Branch& branch, const at::Tensor& x) const {
  if (branch.parts.empty()) return branch.output_bias;
  const at::Tensor normed = norm(branch, x);
  at::Tensor sum;  // [B, T, W]
  for (const Part& part : branch.parts) {
    // With frozen weights, the products before and after the attention save nothing, and the attention saves
    // only what its own gradient needs.
    const std::vector<at::Tensor> qkv = linear(normed, part.in_weight, part.in_bias)
                                            .unflatten(-1, {3, -1, head_size_})
                                            .unbind(2);  // [B, T, N, D] each
    const at::Tensor heads = attention(qkv[0], qkv[1], qkv[2], style_.is_causal);
    sum = sum.defined() ? sum + linear(heads, part.out_weight)
                        : linear(heads, part.out_weight, branch.output_bias);
  }
  return sum;
}

at::Tensor PreNormBlocks::mlp_forward(const Branch& branch, const at::Tensor& x) const {
  if (branch.parts.empty()) return branch.output_bias;
  const bool norm_is_frozen = !branch.norm_weight.requires_grad();
  const at::Tensor normed = norm_is_frozen ? x : norm(branch, x);
  at::Tensor sum;  // [B, T, W]
  for (const Part& part : branch.parts) {
    const auto hidden = [this, &branch, &part, norm_is_frozen](const at::Tensor& input, bool) {
      return at::gelu(linear(norm_is_frozen ? norm(branch, input) : input, part.in_weight, part.in_bias),
                      style_.gelu);
    };
    const at::Tensor h =
        part.in_weight.requires_grad() ? hidden(normed, false) : recomputed(hidden, normed);  // [B, T, H]
    sum = sum.defined() ? sum + linear(h, part.out_weight) : linear(h, part.out_weight, branch.output_bias);
  }
  return sum;
}

at::Tensor PreNormBlocks::add_branch(int index, const at::Tensor& x, const ForwardMode& mode) const {
  if (mode.before_branch) mode.before_branch(index);
  at::Tensor sum = x;
  if (branches_[index]) {
    const Branch& branch = *branches_[index];
    const auto run = [this, &branch, index](const at::Tensor& input, bool) {
      return index % 2 == 0 ? attention_forward(branch, input) : mlp_forward(branch, input);
    };
    const at::Tensor out = branch.parts.empty() ? run(x, false) : run_branch(run, x, mode);  // a bias alone
    sum = x + drop_randomly(out.expand_as(x), drop_, index, static_cast<int>(branches_.size()), mode);
  }
  if (mode.after_branch) mode.after_branch(index);
  return sum;
}

at::Tensor PreNormBlocks::forward(at::Tensor x, const ForwardMode& mode) const {
  for (int i = 0; i < static_cast<int>(branches_.size()); ++i)
    x = add_branch(i, x, mode);
  return x;
}

}  // namespace sdp
