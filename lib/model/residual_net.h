#pragma once

// The forward pass that all ResNets share: stem, blocks relu(P(x) + branch(x)), average pooling and head.
// Each model defines what its branches compute.

#include <functional>
#include <memory>
#include <vector>

#include "layers/drop_rates.h"
#include "layers/model.h"
#include "layers/norms.h"
#include "model/residual_layout.h"

namespace sdp {

// Letters in the comments: B batch, S height and width, C channels of a block's output, C_in channels of its
// input.

/// A block's branch with its bound tensors.
class ResidualBranch {
 public:
  virtual ~ResidualBranch() = default;
  /// Whether the gradient of a weight needs the branch's input.
  virtual bool trains_on_input() const = 0;
  /// x [B, C_in, S, S] -> [B, C, S / stride, S / stride]. In a branch without parts the sum over the parts is
  /// 0, and only the layers that follow the sum are computed.
  virtual at::Tensor forward(const at::Tensor& x, const ForwardMode& mode,
                             BatchNorm::Statistics statistics) const = 0;
};

class ResidualNet : public Model {
 public:
  /// Binds branch `branch`, the branch of `block`, to its tensors in `source`.
  using BindBranch = std::function<std::unique_ptr<ResidualBranch>(const ResidualBlock& block, int branch,
                                                                   const TensorSource& source)>;

  ResidualNet(Stem stem, std::vector<ResidualBlock> blocks, BindBranch bind_branch, const DropRates& drop);
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override;
  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override;
  Head head() const override { return head_; }

 private:
  struct Block : ResidualBlock {
    at::Tensor projection;  // [C, C_in, 1, 1]
    BatchNorm projection_bn;
    std::unique_ptr<ResidualBranch> branch;  ///< null: not bound

    /// Whether the gradient of a weight needs the block's input.
    bool trains_on_input() const { return has_projection() || (branch && branch->trains_on_input()); }
  };
  /// images [B, C, S, S] -> [B, W, S', S'] with W channels.
  at::Tensor stem_forward(const at::Tensor& images, const ForwardMode& mode) const;
  at::Tensor block_forward(size_t index, const at::Tensor& x, const ForwardMode& mode) const;
  /// Whether block `next` or a later one saves the output of the blocks before it.
  bool is_kept(size_t next, const ForwardMode& mode) const;

  const DropRates drop_;
  const BindBranch bind_branch_;
  const Stem stem_;
  at::Tensor conv1_;  // [W, C, 3, 3] or [W, C, 7, 7]
  BatchNorm bn1_;
  Head head_;  // [num_classes, C of the last block], [num_classes]
  std::vector<Block> blocks_;
};

}  // namespace sdp
