#include "model/resnet.h"

#include <ATen/ATen.h>

namespace sdp {
namespace {

constexpr double kBatchNormEps = 1e-5;

BatchNorm bind_batch_norm(const TensorSource& source, const std::string& name) {
  return {source.parameter(name + ".weight"), source.parameter(name + ".bias"),
          source.buffer(name + ".running_mean"), source.buffer(name + ".running_var")};
}

at::Tensor apply(const BatchNorm& bn, const at::Tensor& x, const ForwardMode& mode) {
  return at::batch_norm(x, bn.weight, bn.bias, bn.running_mean, bn.running_var, mode.training,
                        mode.batch_norm_momentum, kBatchNormEps, /*cudnn_enabled=*/true);
}

at::Tensor conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  return at::conv2d(x, weight, /*bias=*/{}, stride, padding);
}

}  // namespace

ResNet18::ResNet18(const ModelSpec& spec) : stem_(spec.stem) {
  for (int stage = 1; stage <= 4; ++stage) {
    for (int i = 0; i < 2; ++i) {
      Block block;
      block.name = "layer" + std::to_string(stage) + "." + std::to_string(i);
      block.has_projection = stage > 1 && i == 0;
      block.stride = block.has_projection ? 2 : 1;
      blocks_.push_back(std::move(block));
    }
  }
}

void ResNet18::bind_shared(const TensorSource& source) {
  conv1_ = source.parameter("conv1.weight");
  bn1_ = bind_batch_norm(source, "bn1");
  fc_weight_ = source.parameter("fc.weight");
  fc_bias_ = source.parameter("fc.bias");
  for (Block& block : blocks_) {
    if (!block.has_projection) continue;
    block.projection = source.parameter(block.name + ".downsample.0.weight");
    block.projection_bn = bind_batch_norm(source, block.name + ".downsample.1");
  }
}

void ResNet18::bind_branch(int branch, const TensorSource& source) {
  Block& block = blocks_.at(branch);
  block.branch = std::make_unique<Branch>(Branch{
      .conv1 = source.parameter(block.name + ".conv1.weight"),
      .conv2 = source.parameter(block.name + ".conv2.weight"),
      .bn1 = bind_batch_norm(source, block.name + ".bn1"),
      .bn2 = bind_batch_norm(source, block.name + ".bn2"),
  });
}

void ResNet18::unbind_branch(int branch) {
  blocks_.at(branch).branch.reset();
}

at::Tensor ResNet18::block_forward(Block& block, int index, const at::Tensor& x, const ForwardMode& mode) {
  at::Tensor out = x;  // P(x)
  if (block.has_projection)
    out = apply(block.projection_bn, conv(x, block.projection, block.stride, 0), mode);
  if (mode.before_branch) mode.before_branch(index);
  if (block.branch) {
    const Branch& branch = *block.branch;
    at::Tensor hidden = at::relu(apply(branch.bn1, conv(x, branch.conv1, block.stride, 1), mode));
    out = out + apply(branch.bn2, conv(hidden, branch.conv2, 1, 1), mode);
  }
  if (mode.after_branch) mode.after_branch(index);
  return at::relu(out);
}

at::Tensor ResNet18::forward(const at::Tensor& images, const ForwardMode& mode) {
  const bool imagenet = stem_ == Stem::kImageNet;
  at::Tensor x = conv(images, conv1_, imagenet ? 2 : 1, imagenet ? 3 : 1);  // [B, W, S, S]
  x = at::relu(apply(bn1_, x, mode));
  if (imagenet) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = block_forward(blocks_[i], static_cast<int>(i), x, mode);
  x = at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);  // [B, 8 W]
  return at::linear(x, fc_weight_, fc_bias_);
}

}  // namespace sdp
