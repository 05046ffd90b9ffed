#include "model/resnet/resnet.h"

#include <ATen/ATen.h>

#include "model/branch.h"
#include "model/conv.h"

namespace sdp {

using Statistics = BatchNorm::Statistics;

bool ResNet18::Block::trains_on_input() const {
  if (has_projection) return true;
  return branch && !branch->parts.empty() && branch->parts.front().conv1.requires_grad();
}

ResNet18::ResNet18(const ResNetSpec& spec, const DropRates& drop) : drop_(drop), stem_(spec.stem) {
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
  stem_.bind(source);
  fc_weight_ = source.parameter("fc.weight");
  fc_bias_ = source.parameter("fc.bias");
  for (Block& block : blocks_) {
    if (!block.has_projection) continue;
    block.projection = source.parameter(block.name + ".downsample.0.weight");
    block.projection_bn = BatchNorm::bind(source, block.name + ".downsample.1");
  }
}

void ResNet18::bind_branch(int branch, const TensorSource& source) {
  Block& block = blocks_.at(branch);
  Branch bound{.parts = {}, .bn2 = BatchNorm::bind(source, block.name + ".bn2")};
  for (int part = 0; part < source.parts(branch); ++part)
    bound.parts.push_back({.conv1 = source.parameter(block.name + ".conv1.weight", part),
                           .conv2 = source.parameter(block.name + ".conv2.weight", part),
                           .bn1 = BatchNorm::bind(source, block.name + ".bn1", part)});
  block.branch = std::move(bound);
}

void ResNet18::unbind_branch(int branch) {
  blocks_.at(branch).branch.reset();
}

at::Tensor ResNet18::branch_forward(const Block& block, const at::Tensor& x, int64_t channels,
                                    const ForwardMode& mode, BatchNorm::Statistics statistics) const {
  at::Tensor sum;  // [B, C, S, S]
  for (const Part& part : block.branch->parts) {
    const auto norm_relu = [part, mode, statistics](const at::Tensor& input, bool again) {
      return at::relu(part.bn1.forward(input, mode, again ? Statistics::kLeave : statistics));
    };
    const at::Tensor c1 = conv2d(x, part.conv1, block.stride, 1);  // [B, H, S, S]
    const at::Tensor hidden = part.conv1.requires_grad() ? norm_relu(c1, false) : recomputed(norm_relu, c1);
    const at::Tensor c2 = conv2d(hidden, part.conv2, 1, 1);
    sum = sum.defined() ? sum + c2 : c2;
  }
  if (!sum.defined()) {  // none of the slices is here: what is not sliced sees their sum, 0
    const int64_t size = (x.size(2) + block.stride - 1) / block.stride;
    sum = at::zeros({x.size(0), channels, size, size}, x.options());
  }
  return block.branch->bn2.forward(sum, mode, statistics);
}

at::Tensor ResNet18::block_forward(size_t index, const at::Tensor& x, const ForwardMode& mode) {
  Block& block = blocks_[index];
  const int branch = static_cast<int>(index);
  if (mode.before_branch) mode.before_branch(branch);
  at::Tensor out = x;  // P(x)
  if (block.has_projection)
    out = block.projection_bn.forward(conv2d(x, block.projection, block.stride, 0), mode);
  // x comes out of a relu: without a branch and a projection, relu(P(x)) is x.
  const bool is_identity = !block.branch && !block.has_projection;
  if (block.branch) {
    const int64_t channels = block.branch->bn2.weight.size(0);
    const auto run = [this, &block, channels, mode](const at::Tensor& input, bool again) {
      return branch_forward(block, input, channels, mode, again ? Statistics::kLeave : Statistics::kUpdate);
    };
    out =
        out + drop_randomly(run_branch(run, x, mode), drop_, branch, static_cast<int>(blocks_.size()), mode);
  }
  if (mode.after_branch) mode.after_branch(branch);
  if (is_identity) return out;
  return is_kept(index + 1, mode) ? at::relu(out) : relu_keeping_bits(out);
}

bool ResNet18::is_kept(size_t next, const ForwardMode& mode) const {
  while (next < blocks_.size() && !blocks_[next].branch && !blocks_[next].has_projection)
    ++next;
  return next < blocks_.size() && (mode.checkpoint_branches || blocks_[next].trains_on_input());
}

at::Tensor ResNet18::features(const at::Tensor& images, const ForwardMode& mode) {
  at::Tensor x = stem_.forward(images, mode, is_kept(0, mode));  // [B, W, S, S]
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = block_forward(i, x, mode);
  return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);  // [B, 8 W]
}

std::unique_ptr<Model> make_model(const ResNetSpec& spec, const DropRates& drop) {
  return std::make_unique<ResNet18>(spec, drop);
}

}  // namespace sdp
