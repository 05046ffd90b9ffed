#include "model/residual_net.h"

#include <ATen/ATen.h>

#include <utility>

#include "layers/branch.h"
#include "layers/conv.h"

namespace sdp {

using Statistics = BatchNorm::Statistics;

ResidualNet::ResidualNet(Stem stem, std::vector<ResidualBlock> blocks, BindBranch bind_branch,
                         const DropRates& drop)
    : drop_(drop), bind_branch_(std::move(bind_branch)), stem_(stem) {
  for (ResidualBlock& block : blocks)
    blocks_.push_back({std::move(block), {}, {}, {}});
}

void ResidualNet::bind_shared(const TensorSource& source) {
  conv1_ = source.parameter("conv1.weight");
  bn1_ = BatchNorm::bind(source, "bn1");
  head_ = {.weight = source.parameter("fc.weight"), .bias = source.parameter("fc.bias")};
  for (Block& block : blocks_) {
    if (!block.has_projection()) continue;
    block.projection = source.parameter(block.name + ".downsample.0.weight");
    block.projection_bn = BatchNorm::bind(source, block.name + ".downsample.1");
  }
}

void ResidualNet::bind_branch(int branch, const TensorSource& source) {
  Block& block = blocks_.at(branch);
  block.branch = bind_branch_(block, branch, source);
}

void ResidualNet::unbind_branch(int branch) {
  blocks_.at(branch).branch.reset();
}

at::Tensor ResidualNet::stem_forward(const at::Tensor& images, const ForwardMode& mode) const {
  const bool imagenet = stem_ == Stem::kImageNet;
  const at::Tensor x = bn1_.forward(conv2d(images, conv1_, imagenet ? 2 : 1, imagenet ? 3 : 1), mode);
  if (imagenet) return at::max_pool2d(x.relu_(), {3, 3}, {2, 2}, {1, 1});
  return is_kept(0, mode) ? x.relu_() : relu_keeping_bits(x);
}

at::Tensor ResidualNet::block_forward(size_t index, const at::Tensor& x, const ForwardMode& mode) const {
  const Block& block = blocks_[index];
  const int branch = static_cast<int>(index);
  if (mode.before_branch) mode.before_branch(branch);
  at::Tensor out = x;  // P(x)
  if (block.has_projection())
    out = block.projection_bn.forward(conv2d(x, block.projection, block.stride, 0), mode);
  // x is the output of a ReLU: without a branch and a projection, relu(P(x)) is x.
  const bool is_identity = !block.branch && !block.has_projection();
  if (block.branch) {
    const auto run = [&block, mode](const at::Tensor& input, bool again) {
      return block.branch->forward(input, mode, again ? Statistics::kLeave : Statistics::kUpdate);
    };
    at::Tensor added =
        drop_randomly(run_branch(run, x, mode), drop_, branch, static_cast<int>(blocks_.size()), mode);
    if (const double scale = branch_scale(mode, branch); scale != 1) added.mul_(scale);
    out = added.add_(out);
  }
  if (mode.after_branch) mode.after_branch(branch);
  if (is_identity) return out;
  return is_kept(index + 1, mode) ? out.relu_() : relu_keeping_bits(out);
}

bool ResidualNet::is_kept(size_t next, const ForwardMode& mode) const {
  while (next < blocks_.size() && !blocks_[next].branch && !blocks_[next].has_projection())
    ++next;
  return next < blocks_.size() && (mode.checkpoint_branches || blocks_[next].trains_on_input());
}

at::Tensor ResidualNet::features(const at::Tensor& images, const ForwardMode& mode) {
  const at::Tensor maps = images.contiguous(map_format(images.scalar_type(), images.is_cuda()));
  at::Tensor x = stem_forward(maps, mode);  // [B, C_in, S, S] of the first block
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = block_forward(i, x, mode);
  return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);  // [B, C] of the last block
}

}  // namespace sdp
