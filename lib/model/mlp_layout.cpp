#include "model/layout_builder.h"
#include "model/mlp_spec.h"

namespace sdp {
namespace {

void add_branch(LayoutBuilder& builder, const std::string& name, int block, int64_t width,
                int64_t hidden_width) {
  const int branch = builder.begin_branch(name, block, {width, width}, hidden_width, kNeuronGranularity);
  const LayerPlace hidden{.branch = branch, .output = kRows};
  builder.layer_norm(name + ".norm", width, {.branch = branch});
  builder.linear(name + ".mlp.0", width, hidden_width, hidden);
  builder.linear(name + ".mlp.3", hidden_width, width,
                 {.branch = branch, .input = kColumns, .scales_branch_output = true});
}

}  // namespace

void MlpSpec::resolve(std::string_view) {
  width = width.value_or(64);
  depth = depth.value_or(4);
  hidden_width = hidden_width.value_or(256);
  image_size = image_size.value_or(kSmallImageSize);
}

MlpSpec MlpSpec::tiny() {
  return {.width = 8, .hidden_width = 24, .image_size = 8};
}

ModelLayout layout_of(const MlpSpec& spec, int64_t) {
  LayoutBuilder builder;
  const int64_t input = spec.image_channels * spec.image_size.value() * spec.image_size.value();
  builder.linear("stem", input, *spec.width, {});
  for (int64_t i = 0; i < *spec.depth; ++i)
    add_branch(builder, "blocks." + std::to_string(i), static_cast<int>(i), *spec.width, *spec.hidden_width);
  builder.linear("head", *spec.width, spec.num_classes, {});
  return builder.take();
}

}  // namespace sdp
