#pragma once

// A model is a forward pass over tensors that it does not own. Shared tensors are bound once. A branch is
// bound if its tensors are available, as the sum of the available parts (layers/tensors.h). A branch
// that is not bound is skipped: the block returns only P(x). One class thus represents a worker's subnetwork
// in every regime, the full model, and the full model streamed one branch at a time.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "layers/tensors.h"

namespace sdp {

struct ForwardMode {
  bool training = true;
  /// Weight of this batch in BatchNorm's running statistics (torch.nn.BatchNorm2d's momentum).
  double batch_norm_momentum = 0.1;
  /// Random number generator for dropout and stochastic depth in training; none: nothing is dropped.
  std::optional<at::Generator> generator = {};
  /// Save only a branch's input for the backward pass, and recompute the branch there.
  bool checkpoint_branches = false;
  /// By branch: factor on its output. Empty: 1.
  std::span<const double> branch_scales = {};
  /// Called before and after each branch's place in the model, even if the branch is not bound: for models
  /// whose branches are bound one at a time (streamed evaluation) or whose values are still being received.
  /// Parameters that are read between two branches' places follow, in the layout, the parameters of the first
  /// of the two branches.
  std::function<void(int branch)> before_branch = {};
  std::function<void(int branch)> after_branch = {};
};

/// The last layer: logits = linear(features, weight, bias).
struct Head {
  at::Tensor weight;  ///< [K, W], K classes or tokens of the vocabulary; undefined: features are logits
  at::Tensor bias;    ///< [K]; undefined: no bias

  at::Tensor logits(const at::Tensor& features) const;  ///< [.., W] -> [.., K]
  int64_t outputs(const at::Tensor& features) const;    ///< K
};

/// The factor on the output of a branch.
inline double branch_scale(const ForwardMode& mode, int branch) {
  return mode.branch_scales.empty() ? 1 : mode.branch_scales[static_cast<size_t>(branch)];
}

class Model {
 public:
  virtual ~Model() = default;
  virtual void bind_shared(const TensorSource& source) = 0;
  virtual void bind_branch(int branch, const TensorSource& source) = 0;
  virtual void unbind_branch(int branch) = 0;

  /// The input of the head: images [B, 3, S, S] in the type of the weights -> [B, W], or tokens [B, T] int64
  /// -> [B, T, W]. A model that reads tokens has a head with a weight.
  virtual at::Tensor features(const at::Tensor& input, const ForwardMode& mode) = 0;
  virtual Head head() const = 0;

  /// Logits [B, num_classes] or [B, T, vocab_size].
  at::Tensor forward(const at::Tensor& input, const ForwardMode& mode);
};

}  // namespace sdp
