#include "model/gpt2/gpt2.h"

#include <ATen/ATen.h>

#include "model/branch.h"
#include "model/transformer.h"

namespace sdp {
namespace {

/// transformers' Conv1D: x [B, T, in] times weight [in, out], plus bias [out] if there is one.
at::Tensor conv1d_layer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) {
  const at::Tensor rows = x.flatten(0, 1);
  const at::Tensor out = bias.defined() ? at::addmm(bias, rows, weight) : rows.mm(weight);
  return out.unflatten(0, x.sizes().slice(0, 2));
}

}  // namespace

Gpt2::Gpt2(const Gpt2Spec& spec, const DropRates& drop)
    : drop_(drop), head_size_(*spec.width / *spec.heads), branches_(static_cast<size_t>(2 * *spec.depth)) {}

Gpt2::Norm Gpt2::bind_norm(const TensorSource& source, const std::string& name) {
  return {.weight = source.parameter(name + ".weight"), .bias = source.parameter(name + ".bias")};
}

void Gpt2::bind_shared(const TensorSource& source) {
  embedding_ = source.parameter("transformer.wte.weight");
  positions_ = source.parameter("transformer.wpe.weight");
  norm_ = bind_norm(source, "transformer.ln_f");
}

void Gpt2::bind_branch(int branch, const TensorSource& source) {
  const std::string block = "transformer.h." + std::to_string(branch / 2);
  const bool is_attention = branch % 2 == 0;
  const std::string in = block + (is_attention ? ".attn.c_attn" : ".mlp.c_fc");
  const std::string out = block + (is_attention ? ".attn.c_proj" : ".mlp.c_proj");
  Branch bound{.norm = bind_norm(source, block + (is_attention ? ".ln_1" : ".ln_2")),
               .output_bias = source.parameter(out + ".bias"),
               .parts = {}};
  for (int part = 0; part < source.parts(branch); ++part)
    bound.parts.push_back({.in_weight = source.parameter(in + ".weight", part),
                           .in_bias = source.parameter(in + ".bias", part),
                           .out_weight = source.parameter(out + ".weight", part)});
  branches_.at(branch) = std::move(bound);
}

at::Tensor Gpt2::attention_forward(const Branch& branch, const at::Tensor& x) const {
  if (branch.parts.empty()) return branch.output_bias;
  const at::Tensor normed = layer_norm(x, branch.norm.weight, branch.norm.bias, kGpt2NormEps);
  at::Tensor sum;  // [B, T, W]
  for (const Part& part : branch.parts) {
    // With frozen weights, the products before and after the attention save nothing, and the attention saves
    // only what its own gradient needs.
    const std::vector<at::Tensor> qkv = conv1d_layer(normed, part.in_weight, part.in_bias)
                                            .unflatten(-1, {3, -1, head_size_})
                                            .unbind(2);  // [B, T, N, D] each
    const at::Tensor heads = causal_attention(qkv[0], qkv[1], qkv[2]);
    sum = sum.defined() ? sum + conv1d_layer(heads, part.out_weight)
                        : conv1d_layer(heads, part.out_weight, branch.output_bias);
  }
  return sum;
}

at::Tensor Gpt2::mlp_forward(const Branch& branch, const at::Tensor& x) const {
  if (branch.parts.empty()) return branch.output_bias;
  const auto norm = [norm = branch.norm](const at::Tensor& input) {
    return layer_norm(input, norm.weight, norm.bias, kGpt2NormEps);
  };
  const bool norm_is_frozen = !branch.norm.weight.requires_grad();
  const at::Tensor normed = norm_is_frozen ? x : norm(x);
  at::Tensor sum;  // [B, T, W]
  for (const Part& part : branch.parts) {
    const auto hidden = [part, norm, norm_is_frozen](const at::Tensor& input, bool) {
      return at::gelu(conv1d_layer(norm_is_frozen ? norm(input) : input, part.in_weight, part.in_bias),
                      "tanh");
    };
    const at::Tensor h =
        part.in_weight.requires_grad() ? hidden(normed, false) : recomputed(hidden, normed);  // [B, T, H]
    sum = sum.defined() ? sum + conv1d_layer(h, part.out_weight)
                        : conv1d_layer(h, part.out_weight, branch.output_bias);
  }
  return sum;
}

at::Tensor Gpt2::add_branch(int index, const at::Tensor& x, const ForwardMode& mode) const {
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

at::Tensor Gpt2::features(const at::Tensor& tokens, const ForwardMode& mode) {
  at::Tensor x = at::embedding(embedding_, tokens) + positions_.narrow(0, 0, tokens.size(1));  // [B, T, W]
  for (int i = 0; i < static_cast<int>(branches_.size()); ++i)
    x = add_branch(i, x, mode);
  return layer_norm(x, norm_.weight, norm_.bias, kGpt2NormEps);
}

std::unique_ptr<Model> make_model(const Gpt2Spec& spec, const DropRates& drop) {
  return std::make_unique<Gpt2>(spec, drop);
}

}  // namespace sdp
