#pragma once

// ModelLayout: what a network consists of, seen by whoever divides it. A residual network is
// x <- P(x) + branch(x), and a branch is a sum over slices of its hidden width, which nothing outside sees
// (SDP paper, section 3; docs/design.md). Everything outside the branches is shared by all workers.
//
// Plain values, no tensor: plans for networks of any size are made and tested on any machine.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "subnet/element_type.h"
#include "subnet/operation.h"

namespace sdp {

/// How a parameter divides over the hidden width H of its branch: its size along `dim` is
/// blocks * H * elements_per_hidden, and hidden range [b, e) is, in each of the `blocks` stacked blocks, the
/// rows [b, e) * elements_per_hidden. A fused qkv weight of h heads has blocks = 3, H = h and
/// elements_per_hidden = head size; the first convolution of a ResNet-18 block has dim 0, blocks = 1, one
/// each.
struct SliceRule {
  int64_t dim = 0;
  int64_t blocks = 1;
  int64_t elements_per_hidden = 1;
};

enum class ParameterRole { kWeight, kBias, kNorm };

/// Distribution a parameter is drawn from: constant `scale`, normal(0, scale) or uniform(-scale, scale).
struct Initializer {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double scale = 0;
};

struct ParameterLayout {
  std::string name;            ///< name in the library whose files users load (torchvision, transformers)
  std::vector<int64_t> shape;  ///< in the full model
  ParameterRole role = ParameterRole::kWeight;
  Initializer init;
  std::optional<int> branch;  ///< none: shared
  std::optional<SliceRule>
      slice;  ///< none, in a branch: taken along by the branch as a whole, shared at neuron level
  bool scales_branch_output =
      false;  ///< the branch's output is linear in it: where a branch scale is folded in

  int64_t elements() const;
};

/// State that training changes without a gradient (BatchNorm running statistics). It belongs to a worker.
struct BufferLayout {
  std::string name;
  std::vector<int64_t> shape;
  double initial = 0;
  std::optional<int> branch;
  std::optional<SliceRule> slice;

  int64_t elements() const;
};

/// Floating-point operations per sample (a multiply-add is two), convolutions and matrix products only, as
/// PyTorch's FlopCounterMode counts them.
struct Flops {
  double forward = 0;
  double weight_gradient = 0;
  double input_gradient = 0;
  double frozen_recompute = 0;  ///< what a frozen slice computes again instead of keeping it

  double training() const { return forward + weight_gradient + input_gradient; }
  double training_frozen() const { return forward + input_gradient + frozen_recompute; }
  Flops& operator+=(const Flops& other);
  Flops operator-(const Flops& other) const;
  Flops operator*(double factor) const;
};

/// Activations per sample.
struct ActivationSize {
  double elements = 0;  ///< of the compute type
  double bytes = 0;     ///< of a type of its own: bit masks, fp32 statistics

  ActivationSize& operator+=(const ActivationSize& other);
  ActivationSize operator*(double factor) const;
};

/// What a branch saves for the backward pass, by what a worker has of it, and its workspace.
struct BranchActivations {
  ActivationSize
      owned;  ///< by owned slices, were they the whole width; a slice's share is its share of the width
  ActivationSize frozen;  ///< by frozen slices, likewise
  // Once, besides:
  ActivationSize with_owned;    ///< some slice is owned
  ActivationSize block_frozen;  ///< block construction: the branch is frozen, its norms too
  ActivationSize
      neuron_frozen;            ///< neuron construction: all slices are frozen, what is not sliced is trained
  ActivationSize neuron_empty;  ///< neuron construction, forward masking: none of the slices is here
  /// Instead of all that with activation checkpointing, where something is computed: the branch's input,
  /// unless it is kept outside of the branch anyway.
  ActivationSize checkpointed;
  /// Beside it while the backward pass is in the branch, at most: of slices that are here, were they the
  /// whole width, and once.
  ActivationSize workspace_of_slices;
  ActivationSize workspace;
};

/// Elements of the residual stream at a branch, per sample.
struct StreamElements {
  int64_t input = 0;   ///< where the branch reads it
  int64_t output = 0;  ///< where the branch's output is added
};

struct BranchLayout {
  std::string name;
  int block = 0;  ///< branches of one block are assigned together under `unit: block`
  StreamElements stream = {};
  int64_t hidden_width = 0;
  /// Slices begin at multiples of it where the width allows. 1: the hidden units are attention heads, of
  /// which a branch may have fewer than slices are asked for.
  int64_t granularity = 1;
  Flops flops = {};  ///< of the whole branch
  /// The part of it of layers that are not sliced. In neuron construction every worker computes it, forward
  /// only where it has no slice; a slice's share of the rest is its share of the width.
  Flops unsliced_flops = {};
  BranchActivations saved = {};
  /// The dropout mask of the branch's output, which is saved with activation checkpointing too.
  ActivationSize dropout_mask = {};
  ActivationSize shared_saved = {};        ///< by shared layers from the branch's place to the next one's
  std::vector<Operation> operations = {};  ///< of the whole branch, with the residual addition
  std::vector<Operation> shared_operations = {};  ///< of shared layers from its place to the next one's
};

/// A loss that is computed with its gradients, some rows at a time (model/linear_cross_entropy.h).
struct ChunkedLoss {
  int head = -1;              ///< parameter whose gradient stands from the forward pass on; -1: no such loss
  double logits = 0;          ///< per sample
  double logits_at_once = 0;  ///< at most
};

struct ModelLayout {
  std::string name;
  std::vector<ParameterLayout> parameters;  ///< in order of depth
  std::vector<BufferLayout> buffers;        ///< in order of depth
  std::vector<BranchLayout> branches;       ///< in order of depth
  Flops shared_flops;
  ActivationSize stem_saved;               ///< by shared layers before the first branch
  std::vector<Operation> stem_operations;  ///< of these
  ChunkedLoss loss;

  int64_t parameter_count() const;
  /// Index by name; std::logic_error when there is none.
  int parameter_index(const std::string& parameter_name) const;
};

/// Type of a parameter's elements: normalisation parameters stay fp32 in a bf16 run.
ElementType element_type(const ParameterLayout& parameter, Precision precision);

}  // namespace sdp
