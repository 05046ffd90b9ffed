#pragma once

#include <vector>

#include "model/conv_stem.h"
#include "model/model.h"
#include "model/resnet50/resnet50_spec.h"

namespace sdp {

// Letters in the comments: B batch, S height and width, W width inside the blocks of a stage, H channels of a
// part between conv2 and conv3.

/// torchvision.models.resnet50 (Bottleneck x [3, 4, 6, 3]).
class ResNet50 : public Model {
 public:
  ResNet50(const ResNet50Spec& spec, const DropRates& drop);
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override { blocks_.at(branch).branch.reset(); }
  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override;
  Head head() const override { return {.weight = fc_weight_, .bias = fc_bias_}; }

 private:
  struct Part {
    at::Tensor conv2, conv3;  // [H, W, 3, 3], [4 W, H, 1, 1]
    BatchNorm bn2;
  };
  struct Branch {
    at::Tensor conv1;  // [W, C_in, 1, 1]
    BatchNorm bn1, bn3;
    std::vector<Part> parts;
  };
  struct Block {
    std::string name;
    int64_t stride = 1;
    bool has_projection = false;
    at::Tensor projection;  // [4 W, C_in, 1, 1]
    BatchNorm projection_bn;
    std::optional<Branch> branch;  ///< none: not bound

    /// Whether a gradient of a weight needs the block's input.
    bool trains_on_input() const;
  };
  /// x [B, C_in, S, S] -> [B, 4 W, S / stride, S / stride]
  at::Tensor branch_forward(const Block& block, const at::Tensor& x, const ForwardMode& mode,
                            BatchNorm::Statistics statistics) const;
  /// The sum over the parts, in front of bn3.
  at::Tensor sum_of_parts(const Block& block, const at::Tensor& x, const ForwardMode& mode,
                          BatchNorm::Statistics statistics) const;
  at::Tensor block_forward(size_t index, const at::Tensor& x, const ForwardMode& mode) const;
  /// Whether somebody keeps the output of the blocks before `next` anyway.
  bool is_kept(size_t next, const ForwardMode& mode) const;

  const DropRates drop_;
  ConvStem stem_;
  at::Tensor fc_weight_, fc_bias_;  // [num_classes, 4 W], [num_classes]
  std::vector<Block> blocks_;
};

}  // namespace sdp
