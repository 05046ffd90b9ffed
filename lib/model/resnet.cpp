#include <ATen/ATen.h>

#include "layers/branch.h"
#include "layers/conv.h"
#include "model/residual_net.h"
#include "model/resnet_spec.h"

namespace sdp {
namespace {

using Statistics = BatchNorm::Statistics;

// Letters in the comments: B batch, S height and width, C channels of a stage, H channels of a part between
// the convolutions of a branch.

/// The branch conv1-bn1-relu-conv2-bn2 of torchvision's BasicBlock.
class BasicBranch : public ResidualBranch {
 public:
  BasicBranch(const ResidualBlock& block, int branch, const TensorSource& source)
      : stride_(block.stride), bn2_(BatchNorm::bind(source, block.name + ".bn2")) {
    for (int part = 0; part < source.parts(branch); ++part)
      parts_.push_back({.conv1 = source.parameter(block.name + ".conv1.weight", part),
                        .conv2 = source.parameter(block.name + ".conv2.weight", part),
                        .bn1 = BatchNorm::bind(source, block.name + ".bn1", part)});
  }

  bool trains_on_input() const override { return !parts_.empty() && parts_.front().conv1.requires_grad(); }

  at::Tensor forward(const at::Tensor& x, const ForwardMode& mode, Statistics statistics) const override {
    at::Tensor sum;  // [B, C, S, S]
    for (const Part& part : parts_) {
      const auto norm_relu = [part, mode, statistics](const at::Tensor& input, bool again) {
        return part.bn1.forward(input, mode, again ? Statistics::kLeave : statistics).relu_();
      };
      const at::Tensor c1 = conv2d(x, part.conv1, stride_, 1);  // [B, H, S, S]
      const at::Tensor hidden = part.conv1.requires_grad() ? norm_relu(c1, false) : recomputed(norm_relu, c1);
      const at::Tensor c2 = conv2d(hidden, part.conv2, 1, 1);
      sum = sum.defined() ? sum.add_(c2) : c2;
    }
    if (!sum.defined()) {  // the worker has no slice: the sum over the slices is 0
      const int64_t size = (x.size(2) + stride_ - 1) / stride_;
      sum = at::zeros({x.size(0), bn2_.weight.size(0), size, size}, x.options());
    }
    return bn2_.forward(sum, mode, statistics);
  }

 private:
  struct Part {
    at::Tensor conv1, conv2;  // [H, C_in, 3, 3], [C, H, 3, 3]
    BatchNorm bn1;
  };

  int64_t stride_;
  std::vector<Part> parts_;
  BatchNorm bn2_;
};

}  // namespace

/// torchvision.models.resnet18 (BasicBlock x [2, 2, 2, 2]).
std::unique_ptr<Model> make_model(const ResNetSpec& spec, const DropRates& drop) {
  const auto bind_branch = [](const ResidualBlock& block, int branch, const TensorSource& source) {
    return std::make_unique<BasicBranch>(block, branch, source);
  };
  return std::make_unique<ResidualNet>(spec.stem, blocks_of(spec), bind_branch, drop);
}

}  // namespace sdp
