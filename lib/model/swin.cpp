#include <ATen/ATen.h>

#include <cmath>

#include "layers/pre_norm_branch.h"
#include "model/swin_spec.h"
#include "model/swin_stages.h"
#include "subnet/layout.h"

namespace sdp {
namespace {

// Letters in the comments: B batch, S height and width of a stage's map, C width of a stage, w side of a
// window, N = w w positions per window, W windows per map, D elements per head, A heads of a part, H hidden
// neurons of a part.

constexpr double kNormEps = 1e-5;
constexpr PreNormBranch::Names kAttention{"norm1", "attn.qkv.weight", "attn.qkv.bias", "attn.proj"};
constexpr PreNormBranch::Names kMlp{"norm2", "mlp.0.weight", "mlp.0.bias", "mlp.3"};

/// For each pair of positions in a window, the row of the relative position bias table: int64 [N N], with
/// entry q N + k for query q and key k.
at::Tensor relative_position_index(int64_t window, at::Device device = at::kCPU) {
  const at::Tensor position = at::arange(window, at::TensorOptions(at::kLong).device(device));
  const at::Tensor row = position.unsqueeze(1).expand({window, window}).flatten();
  const at::Tensor column = position.unsqueeze(0).expand({window, window}).flatten();
  const auto distance = [&](const at::Tensor& at_position) {
    return at_position.unsqueeze(1) - at_position.unsqueeze(0) + (window - 1);
  };
  return (distance(row) * (2 * window - 1) + distance(column)).flatten();
}

/// softmax(q k^T / sqrt(D) + bias) v; q, k, v [B W, A, N, D].
at::Tensor attend_unfused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& bias) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  return q.matmul(k.transpose(-2, -1)).mul_(scale).add_(bias).softmax(-1).matmul(v);
}

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias) {
  if (q.is_cuda()) return at::scaled_dot_product_attention(q, k, v, bias);
  // On a CPU, ATen has no fused kernel for a bias that requires a gradient. Its fallback saves q, k, v and
  // the probabilities, like attend_unfused, but in fp32 even in a bf16 run.
  if (bias.requires_grad()) return attend_unfused(q, k, v, bias);
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, /*dropout_p=*/0,
                                                                     /*is_causal=*/false, bias));
}

/// Attention within windows of a map, with a learned relative position bias (Liu et al. 2021).
struct WindowAttention {
  at::Tensor bias_table;      // [(2 w - 1)^2, A]
  at::Tensor position_index;  // [N N]
  at::Tensor shift_mask;      // [W, N, N]; undefined if windows are not shifted

  /// softmax(q k^T / sqrt(D) + bias) v for every head: qkv [B W, N, 3 A D] -> [B W, N, A D].
  at::Tensor operator()(const at::Tensor& qkv) const;

 private:
  /// The bias added to the scores, [B W, A, N, N] or [1, A, N, N].
  at::Tensor score_bias(int64_t all_windows, int64_t positions) const;
};

at::Tensor WindowAttention::operator()(const at::Tensor& qkv) const {
  const int64_t heads = bias_table.size(1);
  const at::Tensor split =
      qkv.view({qkv.size(0), qkv.size(1), 3, heads, -1}).permute({2, 0, 3, 1, 4});  // [3, B W, A, N, D]
  const at::Tensor &q = split[0], &k = split[1], &v = split[2];
  const at::Tensor bias = score_bias(qkv.size(0), qkv.size(1));
  return attend(q, k, v, bias).transpose(1, 2).flatten(2);
}

at::Tensor WindowAttention::score_bias(int64_t all_windows, int64_t positions) const {
  const int64_t heads = bias_table.size(1);
  const at::Tensor bias = bias_table.index_select(0, position_index)
                              .view({positions, positions, heads})
                              .permute({2, 0, 1})
                              .unsqueeze(0);
  if (!shift_mask.defined()) return bias.contiguous();
  const int64_t windows = shift_mask.size(0);
  return (bias + shift_mask.unsqueeze(1))
      .unsqueeze(0)
      .expand({all_windows / windows, windows, heads, positions, positions})
      .reshape({all_windows, heads, positions, positions});
}

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

/// torchvision.models.swin_t (Liu et al. 2021); layouts in model/model_spec.h. Every block has two branches:
/// attention within windows, which are shifted in every second block, and an MLP.
class SwinT : public Model {
 public:
  SwinT(const SwinSpec& spec, const DropRates& drop);
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override { branches_.at(branch).reset(); }
  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override;
  Head head() const override { return head_; }

 private:
  struct Branch : PreNormBranch {
    std::vector<at::Tensor> bias_tables;  // [(2 w - 1)^2, A] of each part of an attention
  };
  struct Block {
    std::string name;
    size_t stage = 0;
    bool shifted = false;
  };
  struct Merging {
    LayerNorm norm;        // [4 C]
    at::Tensor reduction;  // [2 C, 4 C]
  };

  /// What branch `branch` adds to x [B, S, S, C], undefined if it is not bound; both branches of every block
  /// are counted.
  at::Tensor branch_output(int branch, const at::Tensor& x, const ForwardMode& mode) const;
  /// The output of an attention that has parts.
  at::Tensor attention_forward(const Block& block, const Branch& branch, const at::Tensor& x) const;

  const SwinSpec spec_;
  const DropRates drop_;
  const std::vector<SwinStage> stages_;
  at::Tensor patch_weight_, patch_bias_;  // [C, channels, patch, patch], [C] of the first stage
  LayerNorm patch_norm_, norm_;
  std::vector<Merging> mergings_;        // after each stage but the last
  Head head_;                            // [num_classes, C], [num_classes]
  at::Tensor position_index_;            // [N N]
  std::vector<at::Tensor> shift_masks_;  // [W, N, N] of each stage
  std::vector<Block> blocks_;
  std::vector<std::optional<Branch>> branches_;  ///< std::nullopt: not bound
};

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
                         .shifted = i % 2 == 1 && stages_[stage].shift > 0});
  branches_.resize(2 * blocks_.size());
}

void SwinT::bind_shared(const TensorSource& source) {
  patch_weight_ = source.parameter("features.0.0.weight");
  patch_bias_ = source.parameter("features.0.0.bias");
  patch_norm_ = LayerNorm::bind(source, "features.0.2", kNormEps);
  for (size_t i = 0; i < mergings_.size(); ++i)
    mergings_[i] = {.norm = LayerNorm::bind(source, stages_[i].merging + ".norm", kNormEps),
                    .reduction = source.parameter(stages_[i].merging + ".reduction.weight")};
  norm_ = LayerNorm::bind(source, "norm", kNormEps);
  head_ = {.weight = source.parameter("head.weight"), .bias = source.parameter("head.bias")};
  position_index_ = relative_position_index(*spec_.window_size, patch_weight_.device());
  for (size_t i = 0; i < stages_.size(); ++i)
    if (stages_[i].shift > 0)
      shift_masks_[i] = make_shift_mask(stages_[i], head_.weight.options().requires_grad(false));
}

void SwinT::bind_branch(int branch, const TensorSource& source) {
  const std::string block = blocks_.at(static_cast<size_t>(branch / 2)).name + ".";
  const bool is_attention = branch % 2 == 0;
  Branch bound{
      PreNormBranch::bind(source, branch, block, is_attention ? kAttention : kMlp, {.norm_eps = kNormEps}),
      {}};
  for (int part = 0; is_attention && part < source.parts(branch); ++part)
    bound.bias_tables.push_back(source.parameter(block + "attn.relative_position_bias_table", part));
  branches_.at(branch) = std::move(bound);
}

at::Tensor SwinT::attention_forward(const Block& block, const Branch& branch, const at::Tensor& x) const {
  const SwinStage& stage = stages_[block.stage];
  const int64_t shift = block.shifted ? stage.shift : 0;
  const at::Tensor mask = block.shifted ? shift_masks_[block.stage] : at::Tensor();
  const at::Tensor windows = to_windows(branch.norm(x), stage, shift);  // [B W, N, C]
  const at::Tensor sum = branch.out([&](size_t i) {
    const WindowAttention attention{branch.bias_tables[i], position_index_, mask};
    const at::Tensor qkv = branch.in(branch.parts[i], windows);  // [B W, N, 3 A D]
    // With a frozen bias table, ATen's fused attention would save q, k, v, its result and the score bias of
    // all windows. Recomputed, it saves only q, k, v.
    const auto again = [attention](const at::Tensor& input, bool) { return attention(input); };
    return branch.parts[i].in_weight.requires_grad() ? attention(qkv) : recomputed(again, qkv);
  });
  return from_windows(sum, stage, shift);
}

at::Tensor SwinT::branch_output(int branch, const at::Tensor& x, const ForwardMode& mode) const {
  const std::optional<Branch>& bound = branches_[branch];
  if (!bound) return {};
  const auto forward = [this, branch](const at::Tensor& input, bool) {
    return branch % 2 == 0 ? attention_forward(blocks_[branch / 2], *branches_[branch], input)
                           : branches_[branch]->mlp(input);
  };
  // As in torchvision, both branches of a block are dropped with the block's probability, independently.
  const auto blocks = static_cast<int>(blocks_.size());
  return drop_randomly(bound->output(x, forward, mode), drop_, branch / 2, blocks, mode);
}

at::Tensor SwinT::features(const at::Tensor& images, const ForwardMode& mode) {
  const int64_t patch = *spec_.patch_size;
  at::Tensor x = at::conv2d(images, patch_weight_, patch_bias_, {patch, patch}).permute({0, 2, 3, 1});
  x = patch_norm_(x);  // [B, S, S, C]
  for (size_t i = 0; i < stages_.size(); ++i) {
    const SwinStage& stage = stages_[i];
    for (int branch = 2 * stage.first_block; branch < 2 * (stage.first_block + stage.blocks); ++branch)
      x = add_branch(branch, x, mode, [&] { return branch_output(branch, x, mode); });
    if (i < mergings_.size()) x = at::linear(mergings_[i].norm(merge_patches(x)), mergings_[i].reduction);
  }
  return norm_(x).mean(at::IntArrayRef({1, 2}));  // [B, C] of the last stage
}

}  // namespace

std::unique_ptr<Model> make_model(const SwinSpec& spec, const DropRates& drop) {
  return std::make_unique<SwinT>(spec, drop);
}

/// torchvision stores the relative position indices next to each bias table. They are a constant, the same
/// for all, so the layout does not contain them.
LibraryConstants library_constants(const SwinSpec& spec, const ModelLayout& layout) {
  constexpr std::string_view kBiasTable = "relative_position_bias_table";
  LibraryConstants constants;
  for (const ParameterLayout& parameter : layout.parameters)
    if (parameter.name.ends_with(kBiasTable))
      constants[parameter.name.substr(0, parameter.name.size() - kBiasTable.size()) +
                "relative_position_index"] = relative_position_index(*spec.window_size);
  return constants;
}

}  // namespace sdp
