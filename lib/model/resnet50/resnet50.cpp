#include "model/resnet50/resnet50.h"

#include <ATen/ATen.h>

#include "model/branch.h"
#include "model/conv.h"

namespace sdp {
namespace {

using Statistics = BatchNorm::Statistics;

/// relu(bn(x)), of which x alone stays where nothing that follows is trained with the result.
at::Tensor norm_relu(const BatchNorm& bn, const at::Tensor& x, bool result_is_kept, const ForwardMode& mode,
                     Statistics statistics) {
  const auto compute = [bn, mode, statistics](const at::Tensor& input, bool again) {
    return at::relu(bn.forward(input, mode, again ? Statistics::kLeave : statistics));
  };
  return result_is_kept ? compute(x, false) : recomputed(compute, x);
}

}  // namespace

bool ResNet50::Block::trains_on_input() const {
  if (has_projection) return true;
  return branch && !branch->parts.empty() && branch->conv1.requires_grad();
}

ResNet50::ResNet50(const ResNet50Spec& spec, const DropRates& drop) : drop_(drop), stem_(spec.stem) {
  for (size_t stage = 0; stage < kResNet50Blocks.size(); ++stage) {
    for (int i = 0; i < kResNet50Blocks[stage]; ++i) {
      Block block;
      block.name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      block.has_projection = i == 0;
      block.stride = stage > 0 && i == 0 ? 2 : 1;
      blocks_.push_back(std::move(block));
    }
  }
}

void ResNet50::bind_shared(const TensorSource& source) {
  stem_.bind(source);
  fc_weight_ = source.parameter("fc.weight");
  fc_bias_ = source.parameter("fc.bias");
  for (Block& block : blocks_) {
    if (!block.has_projection) continue;
    block.projection = source.parameter(block.name + ".downsample.0.weight");
    block.projection_bn = BatchNorm::bind(source, block.name + ".downsample.1");
  }
}

void ResNet50::bind_branch(int branch, const TensorSource& source) {
  Block& block = blocks_.at(branch);
  Branch bound{.conv1 = source.parameter(block.name + ".conv1.weight"),
               .bn1 = BatchNorm::bind(source, block.name + ".bn1"),
               .bn3 = BatchNorm::bind(source, block.name + ".bn3"),
               .parts = {}};
  for (int part = 0; part < source.parts(branch); ++part)
    bound.parts.push_back({.conv2 = source.parameter(block.name + ".conv2.weight", part),
                           .conv3 = source.parameter(block.name + ".conv3.weight", part),
                           .bn2 = BatchNorm::bind(source, block.name + ".bn2", part)});
  block.branch = std::move(bound);
}

at::Tensor ResNet50::sum_of_parts(const Block& block, const at::Tensor& x, const ForwardMode& mode,
                                  Statistics statistics) const {
  const Branch& branch = *block.branch;
  if (branch.parts.empty()) {  // what is not sliced sees the sum of no slices, 0
    if (mode.training && statistics == Statistics::kUpdate) {
      const at::NoGradGuard only_statistics;  // of bn1, which no gradient reaches
      branch.bn1.forward(conv2d(x, branch.conv1, 1, 0), mode, statistics);
    }
    const int64_t size = (x.size(2) + block.stride - 1) / block.stride;
    return at::zeros({x.size(0), branch.bn3.weight.size(0), size, size}, x.options());
  }
  const bool trains_conv2 = branch.parts.front().conv2.requires_grad();
  const at::Tensor first =
      norm_relu(branch.bn1, conv2d(x, branch.conv1, 1, 0), trains_conv2, mode, statistics);  // [B, W, S, S]
  at::Tensor sum;
  for (const Part& part : branch.parts) {
    const at::Tensor hidden = norm_relu(part.bn2, conv2d(first, part.conv2, block.stride, 1),
                                        part.conv3.requires_grad(), mode, statistics);  // [B, H, ..]
    const at::Tensor out = conv2d(hidden, part.conv3, 1, 0);
    sum = sum.defined() ? sum + out : out;
  }
  return sum;
}

at::Tensor ResNet50::branch_forward(const Block& block, const at::Tensor& x, const ForwardMode& mode,
                                    Statistics statistics) const {
  return block.branch->bn3.forward(sum_of_parts(block, x, mode, statistics), mode, statistics);
}

at::Tensor ResNet50::block_forward(size_t index, const at::Tensor& x, const ForwardMode& mode) const {
  const Block& block = blocks_[index];
  const int branch = static_cast<int>(index);
  if (mode.before_branch) mode.before_branch(branch);
  at::Tensor out = x;  // P(x)
  if (block.has_projection)
    out = block.projection_bn.forward(conv2d(x, block.projection, block.stride, 0), mode);
  // x comes out of a relu: without a branch and a projection, relu(P(x)) is x.
  const bool is_identity = !block.branch && !block.has_projection;
  if (block.branch) {
    const auto run = [this, &block, mode](const at::Tensor& input, bool again) {
      return branch_forward(block, input, mode, again ? Statistics::kLeave : Statistics::kUpdate);
    };
    out =
        out + drop_randomly(run_branch(run, x, mode), drop_, branch, static_cast<int>(blocks_.size()), mode);
  }
  if (mode.after_branch) mode.after_branch(branch);
  if (is_identity) return out;
  return is_kept(index + 1, mode) ? at::relu(out) : relu_keeping_bits(out);
}

bool ResNet50::is_kept(size_t next, const ForwardMode& mode) const {
  while (next < blocks_.size() && !blocks_[next].branch && !blocks_[next].has_projection)
    ++next;
  return next < blocks_.size() && (mode.checkpoint_branches || blocks_[next].trains_on_input());
}

at::Tensor ResNet50::features(const at::Tensor& images, const ForwardMode& mode) {
  at::Tensor x = stem_.forward(images, mode, is_kept(0, mode));  // [B, W, S, S] of the first stage
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = block_forward(i, x, mode);
  return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);  // [B, 4 W] of the last stage
}

std::unique_ptr<Model> make_model(const ResNet50Spec& spec, const DropRates& drop) {
  return std::make_unique<ResNet50>(spec, drop);
}

}  // namespace sdp
