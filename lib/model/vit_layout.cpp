#include <algorithm>
#include <cmath>

#include "model/layout_builder.h"
#include "model/vit_spec.h"

namespace sdp {
namespace {

struct VitSize {
  std::string_view name;
  int64_t depth, width, heads, patch;
};

constexpr auto kSizes = std::to_array<VitSize>({
    {"vit_s_16", 12, 384, 6, 16},
    {"vit_b_16", 12, 768, 12, 16},
    {"vit_b_32", 12, 768, 12, 32},
    {"vit_l_16", 24, 1024, 16, 16},
});

constexpr double kDeviation = 0.02;

/// torch.nn.init.xavier_uniform_ of a weight [out, in] (Glorot and Bengio 2010).
LinearOptions xavier(int64_t in, int64_t out) {
  return {.init = Initializer{Initializer::Kind::kUniform, std::sqrt(6.0 / static_cast<double>(in + out))}};
}

void add_attention(LayoutBuilder& builder, const std::string& block, int number, const VitSpec& spec,
                   const StreamElements& stream) {
  const int64_t width = *spec.width, head_size = width / *spec.heads;
  const std::string name = block + ".self_attention";
  const int branch = builder.begin_branch(name, number, stream, *spec.heads, /*granularity=*/1, "attention");
  const SliceRule qkv{.dim = 0, .blocks = 3, .elements_per_hidden = head_size};
  const SliceRule head_columns{.dim = 1, .elements_per_hidden = head_size};
  builder.layer_norm(block + ".ln_1", width, {.branch = branch});
  // torch.nn.MultiheadAttention
  const Initializer in_proj = *xavier(width, 3 * width).init;
  builder.parameter(name + ".in_proj_weight", {3 * width, width}, ParameterRole::kWeight, in_proj,
                    {.branch = branch}, qkv);
  builder.parameter(name + ".in_proj_bias", {3 * width}, ParameterRole::kBias, {}, {.branch = branch}, qkv);
  const Initializer out_proj{Initializer::Kind::kUniform, 1 / std::sqrt(static_cast<double>(width))};
  builder.linear(name + ".out_proj", width, width,
                 {.branch = branch, .input = head_columns, .scales_branch_output = true}, {.init = out_proj});
}

/// torchvision draws the biases of the MLP from normal(0, 1e-6). Here they are zeros.
void add_mlp(LayoutBuilder& builder, const std::string& block, int number, const VitSpec& spec,
             const StreamElements& stream) {
  const int64_t width = *spec.width, hidden_width = *spec.hidden_width;
  const std::string name = block + ".mlp";
  const int branch = builder.begin_branch(name, number, stream, hidden_width, kNeuronGranularity, "mlp");
  builder.layer_norm(block + ".ln_2", width, {.branch = branch});
  builder.linear(name + ".0", width, hidden_width, {.branch = branch, .output = kRows},
                 xavier(width, hidden_width));
  builder.linear(name + ".3", hidden_width, width,
                 {.branch = branch, .input = kColumns, .scales_branch_output = true},
                 xavier(hidden_width, width));
}

}  // namespace

void VitSpec::resolve(std::string_view name) {
  const VitSize& size = *std::ranges::find(kSizes, name, &VitSize::name);
  depth = depth.value_or(size.depth);
  width = width.value_or(size.width);
  hidden_width = hidden_width.value_or(4 * *width);
  heads = heads.value_or(heads_of_width(*width, size.width / size.heads));
  patch_size = patch_size.value_or(size.patch);
  image_size = image_size.value_or(*patch_size % 16 == 0 ? kImageNetImageSize : kSmallImageSize);
}

void VitSpec::check(const Positions& positions) const {
  check_multiple(positions, "model.width", *width, "model.heads", *heads, "all heads have the same size");
  check_multiple(positions, "model.image_size", *image_size, "model.patch_size", *patch_size,
                 "the image is divided into whole patches");
}

VitSpec VitSpec::tiny() {
  return {.width = 16, .depth = 2, .heads = 4, .image_size = 8, .patch_size = 2};
}

ModelLayout layout_of(const VitSpec& spec, int64_t) {
  const int64_t width = *spec.width, patch = *spec.patch_size, patches = *spec.image_size / patch;
  const int64_t positions = patches * patches + 1;
  const double fan_in = static_cast<double>(spec.image_channels * patch * patch);
  LayoutBuilder builder;
  // The role of the class token and of the positions is bias, because ViT's recipes do not decay them.
  builder.parameter("class_token", {1, 1, width}, ParameterRole::kBias, {}, {}, {});
  // torchvision truncates at 2, far more than three deviations.
  builder.parameter("conv_proj.weight", {width, spec.image_channels, patch, patch}, ParameterRole::kWeight,
                    {Initializer::Kind::kNormal, 1 / std::sqrt(fan_in)}, {}, {});
  builder.parameter("conv_proj.bias", {width}, ParameterRole::kBias, {}, {}, {});
  builder.parameter("encoder.pos_embedding", {1, positions, width}, ParameterRole::kBias,
                    {Initializer::Kind::kNormal, kDeviation}, {}, {});
  const StreamElements stream{positions * width, positions * width};
  for (int block = 0; block < static_cast<int>(*spec.depth); ++block) {
    const std::string name = "encoder.layers.encoder_layer_" + std::to_string(block);
    add_attention(builder, name, block, spec, stream);
    add_mlp(builder, name, block, spec, stream);
  }
  builder.layer_norm("encoder.ln", width, {});
  // As in timm. torchvision's is zero, with which `analyze` would find no gradients at initialization.
  builder.linear("heads.head", width, spec.num_classes, {},
                 {.init = Initializer{Initializer::Kind::kNormal, kDeviation}});
  return builder.take();
}

}  // namespace sdp
