#include "model/swin/swin.h"

#include <ATen/ATen.h>

#include "model/branch.h"
#include "model/transformer.h"
#include "model/window_attention.h"

namespace sdp {
namespace {

constexpr double kLayerNormEps = 1e-5;

/// x [B, S, S, C] -> [B W, N, C], padded with zeros to whole windows.
at::Tensor to_windows(const at::Tensor& x, const SwinStage& stage, int64_t shift) {
  const int64_t padding = stage.padded_size - stage.size;
  const int64_t across = stage.padded_size / stage.window;
  at::Tensor map = padding > 0 ? at::constant_pad_nd(x, {0, 0, 0, padding, 0, padding}) : x;
  if (shift > 0) map = at::roll(map, {-shift, -shift}, {1, 2});
  return map.view({x.size(0), across, stage.window, across, stage.window, x.size(3)})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({-1, stage.window_positions(), x.size(3)});
}

/// The inverse of to_windows.
at::Tensor from_windows(const at::Tensor& windows, const SwinStage& stage, int64_t shift) {
  const int64_t across = stage.padded_size / stage.window;
  const int64_t width = windows.size(2);
  at::Tensor map = windows.view({-1, across, across, stage.window, stage.window, width})
                       .permute({0, 1, 3, 2, 4, 5})
                       .reshape({-1, stage.padded_size, stage.padded_size, width});
  if (shift > 0) map = at::roll(map, {shift, shift}, {1, 2});
  return map.narrow(1, 0, stage.size).narrow(2, 0, stage.size);
}

/// The mask added to the attention scores of shifted windows, [W, N, N]: -100 (as in torchvision) between
/// positions that are in one window only because the map was rolled, 0 elsewhere.
at::Tensor make_shift_mask(const SwinStage& stage, const at::TensorOptions& options) {
  // Rows, and likewise columns, are divided into three strips: all windows but the last, and the two pieces
  // of the last window.
  const at::Tensor position = at::arange(stage.padded_size, options.dtype(at::kLong));
  const at::Tensor strip = position.ge(stage.padded_size - stage.window).to(at::kLong) +
                           position.ge(stage.padded_size - stage.shift).to(at::kLong);
  const at::Tensor region = strip.unsqueeze(1) * 3 + strip.unsqueeze(0);  // [S, S] of the padded map
  const int64_t across = stage.padded_size / stage.window;
  const at::Tensor windows = region.view({across, stage.window, across, stage.window})
                                 .permute({0, 2, 1, 3})
                                 .reshape({-1, stage.window_positions()});
  constexpr double kApart = -100;
  return windows.unsqueeze(1).ne(windows.unsqueeze(2)).to(at::kFloat).mul(kApart).to(options);
}

/// x [B, S, S, C] -> [B, S / 2, S / 2, 4 C]. An odd S is padded with zeros.
at::Tensor merge_patches(const at::Tensor& x) {
  const int64_t odd = x.size(1) % 2;
  const at::Tensor map = odd > 0 ? at::constant_pad_nd(x, {0, 0, 0, odd, 0, odd}) : x;
  const auto every_second = [&](int64_t row, int64_t column) {
    return map.slice(1, row, c10::nullopt, 2).slice(2, column, c10::nullopt, 2);
  };
  return at::cat({every_second(0, 0), every_second(1, 0), every_second(0, 1), every_second(1, 1)}, -1);
}

}  // namespace

SwinT::SwinT(const SwinSpec& spec, const DropRates& drop)
    : spec_(spec),
      drop_(drop),
      stages_(swin_stages(spec)),
      mergings_(stages_.size() - 1),
      shift_masks_(stages_.size()) {
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    for (int i = 0; i < stages_[stage].blocks; ++i)
      blocks_.push_back({.name = stages_[stage].name + "." + std::to_string(i),
                         .stage = stage,
                         .shifted = i % 2 == 1 && stages_[stage].shift > 0,
                         .attention = {},
                         .mlp = {}});
}

SwinT::Norm SwinT::bind_norm(const TensorSource& source, const std::string& name) {
  return {source.parameter(name + ".weight"), source.parameter(name + ".bias")};
}

void SwinT::bind_shared(const TensorSource& source) {
  patch_weight_ = source.parameter("features.0.0.weight");
  patch_bias_ = source.parameter("features.0.0.bias");
  patch_norm_ = bind_norm(source, "features.0.2");
  for (size_t i = 0; i < mergings_.size(); ++i)
    mergings_[i] = {.norm = bind_norm(source, stages_[i].merging + ".norm"),
                    .reduction = source.parameter(stages_[i].merging + ".reduction.weight")};
  norm_ = bind_norm(source, "norm");
  head_weight_ = source.parameter("head.weight");
  head_bias_ = source.parameter("head.bias");
  position_index_ = relative_position_index(*spec_.window_size, patch_weight_.device());
  for (size_t i = 0; i < stages_.size(); ++i)
    if (stages_[i].shift > 0)
      shift_masks_[i] = make_shift_mask(stages_[i], head_weight_.options().requires_grad(false));
}

void SwinT::bind_branch(int branch, const TensorSource& source) {
  Block& block = blocks_.at(static_cast<size_t>(branch / 2));
  const int parts = source.parts(branch);
  if (branch % 2 == 0) {
    const std::string name = block.name + ".attn";
    Branch<AttentionPart> bound{.norm = bind_norm(source, block.name + ".norm1"),
                                .output_bias = source.parameter(name + ".proj.bias"),
                                .parts = {}};
    for (int part = 0; part < parts; ++part)
      bound.parts.push_back({.qkv_weight = source.parameter(name + ".qkv.weight", part),
                             .qkv_bias = source.parameter(name + ".qkv.bias", part),
                             .proj_weight = source.parameter(name + ".proj.weight", part),
                             .bias_table = source.parameter(name + ".relative_position_bias_table", part)});
    block.attention = std::move(bound);
  } else {
    const std::string name = block.name + ".mlp";
    Branch<MlpPart> bound{.norm = bind_norm(source, block.name + ".norm2"),
                          .output_bias = source.parameter(name + ".3.bias"),
                          .parts = {}};
    for (int part = 0; part < parts; ++part)
      bound.parts.push_back({.up_weight = source.parameter(name + ".0.weight", part),
                             .up_bias = source.parameter(name + ".0.bias", part),
                             .down_weight = source.parameter(name + ".3.weight", part)});
    block.mlp = std::move(bound);
  }
}

void SwinT::unbind_branch(int branch) {
  Block& block = blocks_.at(static_cast<size_t>(branch / 2));
  if (branch % 2 == 0)
    block.attention.reset();
  else
    block.mlp.reset();
}

at::Tensor SwinT::layer_norm(const at::Tensor& x, const Norm& norm) {
  return sdp::layer_norm(x, norm.weight, norm.bias, kLayerNormEps);
}

at::Tensor SwinT::attention_forward(const Block& block, const at::Tensor& x) const {
  const Branch<AttentionPart>& branch = *block.attention;
  if (branch.parts.empty()) return branch.output_bias;
  const SwinStage& stage = stages_[block.stage];
  const int64_t shift = block.shifted ? stage.shift : 0;
  const at::Tensor mask = block.shifted ? shift_masks_[block.stage] : at::Tensor();
  const at::Tensor windows = to_windows(layer_norm(x, branch.norm), stage, shift);  // [B W, N, C]
  at::Tensor sum;                                                                   // [B W, N, C]
  for (const AttentionPart& part : branch.parts) {
    const WindowAttention attention{part.bias_table, position_index_, mask};
    const at::Tensor qkv = at::linear(windows, part.qkv_weight, part.qkv_bias);  // [B W, N, 3 A D]
    // With a frozen bias table, ATen's fused attention would save q, k, v, its result and the score bias of
    // all windows. Recomputed, it saves only q, k, v.
    const auto again = [attention](const at::Tensor& input, bool) { return attention(input); };
    const at::Tensor heads = part.qkv_weight.requires_grad() ? attention(qkv) : recomputed(again, qkv);
    const at::Tensor out = at::linear(heads, part.proj_weight);
    sum = sum.defined() ? sum + out : out + branch.output_bias;
  }
  return from_windows(sum, stage, shift);
}

at::Tensor SwinT::mlp_forward(const Branch<MlpPart>& branch, const at::Tensor& x) const {
  if (branch.parts.empty()) return branch.output_bias;
  const bool norm_is_frozen = !branch.norm.weight.requires_grad();
  const at::Tensor normed = norm_is_frozen ? x : layer_norm(x, branch.norm);  // [B, S, S, C]
  at::Tensor sum;
  for (const MlpPart& part : branch.parts) {
    const auto hidden = [part, norm = branch.norm, norm_is_frozen](const at::Tensor& input, bool) {
      return at::gelu(
          at::linear(norm_is_frozen ? layer_norm(input, norm) : input, part.up_weight, part.up_bias));
    };
    const at::Tensor h = part.up_weight.requires_grad() ? hidden(normed, false) : recomputed(hidden, normed);
    const at::Tensor out = at::linear(h, part.down_weight);  // h is [B, S, S, H]
    sum = sum.defined() ? sum + out : out + branch.output_bias;
  }
  return sum;
}

at::Tensor SwinT::add_branch(int branch, const at::Tensor& x, const ForwardMode& mode) const {
  const Block& block = blocks_[static_cast<size_t>(branch / 2)];
  if (mode.before_branch) mode.before_branch(branch);
  const bool is_attention = branch % 2 == 0;
  at::Tensor sum = x;
  if (is_attention ? block.attention.has_value() : block.mlp.has_value()) {
    const auto run = [this, &block, is_attention](const at::Tensor& input, bool) {
      return is_attention ? attention_forward(block, input) : mlp_forward(*block.mlp, input);
    };
    const bool has_parts = is_attention ? !block.attention->parts.empty() : !block.mlp->parts.empty();
    const at::Tensor out = has_parts ? run_branch(run, x, mode) : run(x, false);  // a bias alone
    // As in torchvision, both branches of a block are dropped with the block's probability, independently.
    sum = x + drop_randomly(out.expand_as(x), drop_, branch / 2, static_cast<int>(blocks_.size()), mode);
  }
  if (mode.after_branch) mode.after_branch(branch);
  return sum;
}

at::Tensor SwinT::features(const at::Tensor& images, const ForwardMode& mode) {
  const int64_t patch = *spec_.patch_size;
  at::Tensor x = at::conv2d(images, patch_weight_, patch_bias_, {patch, patch}).permute({0, 2, 3, 1});
  x = layer_norm(x, patch_norm_);  // [B, S, S, C]
  for (size_t i = 0; i < stages_.size(); ++i) {
    const SwinStage& stage = stages_[i];
    for (int branch = 2 * stage.first_block; branch < 2 * (stage.first_block + stage.blocks); ++branch)
      x = add_branch(branch, x, mode);
    if (i < mergings_.size())
      x = at::linear(layer_norm(merge_patches(x), mergings_[i].norm), mergings_[i].reduction);
  }
  return layer_norm(x, norm_).mean(at::IntArrayRef({1, 2}));  // [B, C] of the last stage
}

std::unique_ptr<Model> make_model(const SwinSpec& spec, const DropRates& drop) {
  return std::make_unique<SwinT>(spec, drop);
}

}  // namespace sdp
