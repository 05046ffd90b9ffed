#include "model/vit_spec.h"

#include <ATen/ATen.h>

#include "layers/pre_norm_blocks.h"

namespace sdp {
namespace {

constexpr PreNormStyle kStyle{
    .blocks = "encoder.layers.encoder_layer_",
    .attention = {"ln_1", "self_attention.in_proj_weight", "self_attention.in_proj_bias",
                  "self_attention.out_proj"},
    .mlp = {"ln_2", "mlp.0.weight", "mlp.0.bias", "mlp.3"},
    .is_causal = false,
    .branches = {.norm_eps = 1e-6},
};

/// torchvision.models.VisionTransformer.
class Vit : public Model {
 public:
  Vit(const VitSpec& spec, const DropRates& drop)
      : patch_(*spec.patch_size), blocks_(kStyle, *spec.depth, *spec.width / *spec.heads, drop) {}

  void bind_shared(const TensorSource& source) override {
    class_token_ = source.parameter("class_token");
    patch_weight_ = source.parameter("conv_proj.weight");
    patch_bias_ = source.parameter("conv_proj.bias");
    positions_ = source.parameter("encoder.pos_embedding");
    norm_ = LayerNorm::bind(source, "encoder.ln", kStyle.branches.norm_eps);
    head_ = {.weight = source.parameter("heads.head.weight"), .bias = source.parameter("heads.head.bias")};
  }
  void bind_branch(int branch, const TensorSource& source) override { blocks_.bind(branch, source); }
  void unbind_branch(int branch) override { blocks_.unbind(branch); }

  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override {
    const at::Tensor patches =
        at::conv2d(images, patch_weight_, patch_bias_, {patch_, patch_}).flatten(2).transpose(1, 2);
    const at::Tensor x = at::cat({class_token_.expand({images.size(0), -1, -1}), patches}, 1) + positions_;
    // The norm acts on each position alone, and the head reads only the class token.
    return norm_(blocks_.forward(x, mode).select(1, 0));
  }
  Head head() const override { return head_; }

 private:
  const int64_t patch_;
  PreNormBlocks blocks_;
  at::Tensor class_token_, positions_;    // [1, 1, W], [1, 1 + number of patches, W]
  at::Tensor patch_weight_, patch_bias_;  // [W, channels, patch, patch], [W]
  LayerNorm norm_;
  Head head_;
};

}  // namespace

std::unique_ptr<Model> make_model(const VitSpec& spec, const DropRates& drop) {
  return std::make_unique<Vit>(spec, drop);
}

}  // namespace sdp
