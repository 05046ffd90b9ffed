#pragma once

#include <vector>

#include "model/conv_stem.h"
#include "model/model.h"
#include "model/resnet/resnet_spec.h"

namespace sdp {

// Letters in the comments: B batch, S height and width, W stem width, C channels of a stage, H channels of a
// part between the convolutions of a branch.

/// torchvision.models.resnet18 (BasicBlock x [2, 2, 2, 2]); layouts in model/layouts.h.
class ResNet18 : public Model {
 public:
  ResNet18(const ResNetSpec& spec, const DropRates& drop);
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override;
  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override;
  Head head() const override { return {.weight = fc_weight_, .bias = fc_bias_}; }

 private:
  struct Part {
    at::Tensor conv1, conv2;  // [H, C_in, 3, 3], [C, H, 3, 3]
    BatchNorm bn1;
  };
  struct Branch {
    std::vector<Part> parts;
    BatchNorm bn2;
  };
  struct Block {
    std::string name;
    int64_t stride = 1;
    bool has_projection = false;
    at::Tensor projection;  // [C, C_in, 1, 1]
    BatchNorm projection_bn;
    std::optional<Branch> branch;  ///< none: not bound

    /// Whether a gradient of a weight needs the block's input.
    bool trains_on_input() const;
  };
  at::Tensor block_forward(size_t index, const at::Tensor& x, const ForwardMode& mode);
  at::Tensor branch_forward(const Block& block, const at::Tensor& x, int64_t channels,
                            const ForwardMode& mode, BatchNorm::Statistics statistics) const;
  /// Whether somebody keeps the output of the blocks before `next` anyway.
  bool is_kept(size_t next, const ForwardMode& mode) const;

  const DropRates drop_;
  ConvStem stem_;
  at::Tensor fc_weight_, fc_bias_;  // [num_classes, 8 W], [num_classes]
  std::vector<Block> blocks_;
};

}  // namespace sdp
