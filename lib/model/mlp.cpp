#include <ATen/ATen.h>

#include "layers/pre_norm_blocks.h"
#include "model/mlp_spec.h"

namespace sdp {
namespace {

constexpr PreNormStyle kStyle{
    .blocks = "blocks.",
    .mlp = {"norm", "mlp.0.weight", "mlp.0.bias", "mlp.3"},
    .branches = {.activation = Activation::kRelu},
};

/// Residual MLP (model/model_spec.h): stem, pre-norm blocks, head.
class Mlp : public Model {
 public:
  Mlp(const MlpSpec& spec, const DropRates& drop) : blocks_(kStyle, *spec.depth, /*head_size=*/0, drop) {}

  void bind_shared(const TensorSource& source) override {
    stem_weight_ = source.parameter("stem.weight");
    stem_bias_ = source.parameter("stem.bias");
    head_ = {.weight = source.parameter("head.weight"), .bias = source.parameter("head.bias")};
  }
  void bind_branch(int branch, const TensorSource& source) override { blocks_.bind(branch, source); }
  void unbind_branch(int branch) override { blocks_.unbind(branch); }

  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override {
    return blocks_.forward(at::linear(images.flatten(1), stem_weight_, stem_bias_), mode);  // [B, W]
  }
  Head head() const override { return head_; }

 private:
  PreNormBlocks blocks_;
  at::Tensor stem_weight_, stem_bias_;  // [W, number of input elements], [W]
  Head head_;
};

}  // namespace

std::unique_ptr<Model> make_model(const MlpSpec& spec, const DropRates& drop) {
  return std::make_unique<Mlp>(spec, drop);
}

}  // namespace sdp
