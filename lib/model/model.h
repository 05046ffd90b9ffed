#pragma once

// A model is a forward pass over tensors that somebody else holds. Shared tensors are bound once; each branch
// is bound where its tensors are, as the sum of the parts that are there (model/tensor_source.h), and a
// branch that is not bound does not exist: the block passes on P(x) alone. A worker's subnetwork in every
// regime, the full model, and the full model streamed one branch at a time are one class in different states.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "model/model_spec.h"
#include "model/tensor_source.h"
#include "subnet/plan.h"

namespace sdp {

struct ForwardMode {
  bool training = true;
  /// Weight of this batch in BatchNorm's running statistics (torch.nn.BatchNorm2d's momentum).
  double batch_norm_momentum = 0.1;
  /// Source of dropout and stochastic depth in training; none: nothing is dropped.
  std::optional<at::Generator> generator = {};
  /// Keep only a branch's input for the backward pass, and compute the branch again there.
  bool checkpoint_branches = false;
  /// Called before and after each branch's place in the model, also of branches that are not bound: for
  /// models whose branches come and go (streamed evaluation), or whose values are still on their way. What is
  /// read between two branches' places stands, in the layout, behind the parameters of the first of them.
  std::function<void(int branch)> before_branch = {};
  std::function<void(int branch)> after_branch = {};
};

/// The last layer: logits = linear(features, weight, bias).
struct Head {
  at::Tensor weight;  ///< [K, W], K classes or tokens of the vocabulary
  at::Tensor bias;    ///< [K]; undefined: none
};

class Model {
 public:
  virtual ~Model() = default;
  virtual void bind_shared(const TensorSource& source) = 0;
  virtual void bind_branch(int branch, const TensorSource& source) = 0;
  virtual void unbind_branch(int branch) = 0;

  /// images [B, 3, S, S] in the type of the weights -> [B, W], or tokens [B, T] int64 -> [B, T, W]: what the
  /// head turns into logits.
  virtual at::Tensor features(const at::Tensor& input, const ForwardMode& mode) = 0;
  virtual Head head() const = 0;

  /// Logits [B, num_classes] or [B, T, vocab_size].
  at::Tensor forward(const at::Tensor& input, const ForwardMode& mode);
};

/// The model the spec names, with nothing bound.
std::unique_ptr<Model> make_model(const ModelSpec& spec);

/// The worker's subnetwork: the shared tensors are bound, and every branch of which it has something. In
/// neuron construction that is every branch: what is not sliced is shared.
std::unique_ptr<Model> make_subnetwork(const ModelSpec& spec, const SubnetPlan& plan, int worker,
                                       const TensorSource& source);

}  // namespace sdp
