#include <ATen/ATen.h>

#include "layers/branch.h"
#include "layers/conv.h"
#include "model/residual_net.h"
#include "model/resnet50_spec.h"

namespace sdp {
namespace {

using Statistics = BatchNorm::Statistics;

// Letters in the comments: B batch, S height and width, W width inside the blocks of a stage, H channels of a
// part between conv2 and conv3.

/// relu(bn(x)). Only x is saved if no following layer is trained with the result.
at::Tensor norm_relu(const BatchNorm& bn, const at::Tensor& x, bool result_is_kept, const ForwardMode& mode,
                     Statistics statistics) {
  const auto compute = [bn, mode, statistics](const at::Tensor& input, bool again) {
    return bn.forward(input, mode, again ? Statistics::kLeave : statistics).relu_();
  };
  return result_is_kept ? compute(x, false) : recomputed(compute, x);
}

/// The branch conv1-bn1-relu-conv2-bn2-relu-conv3-bn3 of torchvision's Bottleneck.
class BottleneckBranch : public ResidualBranch {
 public:
  BottleneckBranch(const ResidualBlock& block, int branch, const TensorSource& source)
      : stride_(block.stride),
        conv1_(source.parameter(block.name + ".conv1.weight")),
        bn1_(BatchNorm::bind(source, block.name + ".bn1")),
        bn3_(BatchNorm::bind(source, block.name + ".bn3")) {
    for (int part = 0; part < source.parts(branch); ++part)
      parts_.push_back({.conv2 = source.parameter(block.name + ".conv2.weight", part),
                        .conv3 = source.parameter(block.name + ".conv3.weight", part),
                        .bn2 = BatchNorm::bind(source, block.name + ".bn2", part)});
  }

  bool trains_on_input() const override { return !parts_.empty() && conv1_.requires_grad(); }

  at::Tensor forward(const at::Tensor& x, const ForwardMode& mode, Statistics statistics) const override {
    return bn3_.forward(sum_of_parts(x, mode, statistics), mode, statistics);
  }

 private:
  struct Part {
    at::Tensor conv2, conv3;  // [H, W, 3, 3], [4 W, H, 1, 1]
    BatchNorm bn2;
  };

  /// The sum over the parts, which is the input of bn3.
  at::Tensor sum_of_parts(const at::Tensor& x, const ForwardMode& mode, Statistics statistics) const {
    if (parts_.empty()) {  // the worker has no slice: the sum over the slices is 0
      if (mode.training && statistics == Statistics::kUpdate) {
        const at::NoGradGuard only_statistics;  // no gradient reaches bn1; only its statistics are updated
        bn1_.forward(conv2d(x, conv1_, 1, 0), mode, statistics);
      }
      const int64_t size = (x.size(2) + stride_ - 1) / stride_;
      return at::zeros({x.size(0), bn3_.weight.size(0), size, size}, x.options());
    }
    const bool trains_conv2 = parts_.front().conv2.requires_grad();
    const at::Tensor first =
        norm_relu(bn1_, conv2d(x, conv1_, 1, 0), trains_conv2, mode, statistics);  // [B, W, S, S]
    at::Tensor sum;
    for (const Part& part : parts_) {
      const at::Tensor hidden = norm_relu(part.bn2, conv2d(first, part.conv2, stride_, 1),
                                          part.conv3.requires_grad(), mode, statistics);  // [B, H, ..]
      const at::Tensor out = conv2d(hidden, part.conv3, 1, 0);
      sum = sum.defined() ? sum.add_(out) : out;
    }
    return sum;
  }

  int64_t stride_;
  at::Tensor conv1_;  // [W, C_in, 1, 1]
  BatchNorm bn1_, bn3_;
  std::vector<Part> parts_;
};

}  // namespace

/// torchvision.models.resnet50 (Bottleneck x [3, 4, 6, 3]).
std::unique_ptr<Model> make_model(const ResNet50Spec& spec, const DropRates& drop) {
  const auto bind_branch = [](const ResidualBlock& block, int branch, const TensorSource& source) {
    return std::make_unique<BottleneckBranch>(block, branch, source);
  };
  return std::make_unique<ResidualNet>(spec.stem, blocks_of(spec), bind_branch, drop);
}

}  // namespace sdp
