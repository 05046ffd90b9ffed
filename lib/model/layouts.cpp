#include "model/layouts.h"

#include "model/layout_builder.h"

namespace sdp {
namespace {

constexpr int64_t kImageChannels = 3;
constexpr SliceRule kRows{.dim = 0};
constexpr SliceRule kColumns{.dim = 1};

/// One BasicBlock: branch conv1-bn1-relu-conv2-bn2 whose hidden width is the channels between the
/// convolutions, and the projection shortcut where shapes change. Returns the output size.
int64_t add_basic_block(LayoutBuilder& builder, const std::string& name, int block, int64_t in, int64_t out,
                        int64_t size, int64_t stride) {
  const int64_t out_size = (size + stride - 1) / stride;
  const int64_t positions = out_size * out_size;
  const int branch = builder.begin_branch(name, block, out);
  const LayerPlace first{.branch = branch, .output = kRows, .input = {}};
  const LayerPlace second{.branch = branch, .output = {}, .input = kColumns};
  const LayerPlace norm{.branch = branch, .output = {}, .input = {}, .scales_branch_output = true};
  builder.convolution(name + ".conv1", in, out, 3, positions, first);
  builder.batch_norm(name + ".bn1", out, first);
  builder.convolution(name + ".conv2", out, out, 3, positions, second);
  builder.batch_norm(name + ".bn2", out, norm);
  builder.keep_hidden(branch, 2 * out * positions);   // bn1's input, conv2's input (relu's output)
  builder.keep_with_branch(branch, out * positions);  // bn2's input
  if (stride != 1 || in != out) {
    builder.convolution(name + ".downsample.0", in, out, 1, positions, {});
    builder.batch_norm(name + ".downsample.1", out, {});
    builder.keep_shared(out * positions);  // the shortcut's BatchNorm input
  }
  builder.keep_shared(out * positions);  // the block's output: relu's result, the next block's input
  return out_size;
}

}  // namespace

ModelLayout resnet18_layout(const ModelSpec& spec) {
  LayoutBuilder builder("resnet18");
  int64_t size = spec.image_size.value();
  const bool imagenet = spec.stem == Stem::kImageNet;
  const int64_t input_elements = kImageChannels * size * size;
  if (imagenet) size = (size + 1) / 2;
  builder.convolution("conv1", kImageChannels, spec.width, imagenet ? 7 : 3, size * size, {}, /*first=*/true);
  builder.batch_norm("bn1", spec.width, {});
  builder.keep_shared(input_elements + 2 * spec.width * size * size);  // input, bn1's input, relu's output
  if (imagenet) {
    size = (size + 1) / 2;
    builder.keep_shared(3 * spec.width * size * size);  // max-pool's result and its indices (int64: twice)
  }
  int64_t in = spec.width;
  int block = 0;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t out = spec.width << stage;
    for (int i = 0; i < 2; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      size = add_basic_block(builder, name, block++, in, out, size, stage > 0 && i == 0 ? 2 : 1);
      in = out;
    }
  }
  builder.linear("fc", in, spec.num_classes, {});
  builder.keep_shared(in + spec.num_classes);  // fc's input, the log-probabilities
  return builder.take();
}

ModelLayout mlp_layout(const ModelSpec& spec) {
  LayoutBuilder builder("mlp");
  const int64_t input = kImageChannels * spec.image_size.value() * spec.image_size.value();
  builder.linear("stem", input, spec.width, {}, /*first=*/true);
  builder.keep_shared(input + spec.width);
  for (int64_t i = 0; i < spec.depth; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    const int branch = builder.begin_branch(name, static_cast<int>(i), spec.hidden_width);
    builder.norm(name + ".norm", spec.width, {.branch = branch, .output = {}, .input = {}});
    builder.linear(name + ".mlp.0", spec.width, spec.hidden_width,
                   {.branch = branch, .output = kRows, .input = {}});
    builder.linear(name + ".mlp.3", spec.hidden_width, spec.width,
                   {.branch = branch, .output = {}, .input = kColumns, .scales_branch_output = true});
    builder.keep_hidden(branch, spec.hidden_width);
    builder.keep_with_branch(branch, 2 * spec.width);
  }
  builder.linear("head", spec.width, spec.num_classes, {});
  builder.keep_shared(spec.width + spec.num_classes);
  return builder.take();
}

ModelLayout layout_of(const ModelSpec& spec) {
  return spec.name == ModelName::kResNet18 ? resnet18_layout(spec) : mlp_layout(spec);
}

}  // namespace sdp
