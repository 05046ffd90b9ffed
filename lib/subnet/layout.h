#pragma once

// ModelLayout describes the structure of a network as far as needed to divide it. A residual network is
// x <- P(x) + branch(x), and a branch is a sum over slices of its hidden width, which is not visible outside
// the branch (SDP paper, section 3; docs/design.md). All workers share everything outside the branches.
//
// A layout has plain values and no tensors, so plans for networks of any size can be made and tested on any
// machine.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "subnet/element_type.h"

namespace sdp {

/// How a parameter divides over the hidden width H of its branch. Its size along `dim` is
/// blocks * H * elements_per_hidden, and hidden range [b, e) corresponds to the rows [b, e) *
/// elements_per_hidden in each of the `blocks` stacked blocks. A fused qkv weight with h heads has blocks =
/// 3, H = h and elements_per_hidden = head size; the first convolution of a ResNet-18 block has dim = 0,
/// blocks = 1 and elements_per_hidden = 1.
struct SliceRule {
  int64_t dim = 0;
  int64_t blocks = 1;
  int64_t elements_per_hidden = 1;
};

enum class ParameterRole { kWeight, kBias, kNorm };

/// Distribution of a parameter's initial values: constant `scale`, normal(0, scale) or uniform(-scale,
/// scale).
struct Initializer {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double scale = 0;
};

struct ParameterLayout {
  std::string name;            ///< as in the library whose files users load (torchvision, transformers)
  std::vector<int64_t> shape;  ///< in the full model
  ParameterRole role = ParameterRole::kWeight;
  Initializer init;
  std::optional<int> branch;  ///< none: shared
  std::optional<SliceRule>
      slice;  ///< none, in a branch: part of the unit in block construction, shared in neuron construction
  /// The branch's output is linear in it, so a branch scale can be folded into it.
  bool scales_branch_output = false;
  std::shared_ptr<const class OwnInitializer> own_init = {};  ///< instead of `init` (layers/tensors.h)

  int64_t elements() const;
};

/// State that training changes without a gradient (BatchNorm running statistics). Every worker has its own
/// copy.
struct BufferLayout {
  std::string name;
  std::vector<int64_t> shape;
  double initial = 0;
  std::optional<int> branch;
  std::optional<SliceRule> slice;

  int64_t elements() const;
};

/// Elements of the residual stream at a branch, per sample.
struct StreamElements {
  int64_t input = 0;   ///< at the branch's input
  int64_t output = 0;  ///< at the addition of the branch's output
};

/// Floating-point operations per sample (a multiply-add counts as two). Only convolutions and matrix products
/// are counted, as in PyTorch's FlopCounterMode.
struct Flops {
  double forward = 0;
  double weight_gradient = 0;
  double input_gradient = 0;
  double frozen_recompute = 0;  ///< recomputation of values that a frozen slice does not save

  double training() const { return forward + weight_gradient + input_gradient; }
  double training_frozen() const { return forward + input_gradient + frozen_recompute; }
  Flops& operator+=(const Flops& other);
  Flops operator-(const Flops& other) const;
  Flops operator*(double factor) const;
};

struct BranchLayout {
  std::string name;
  /// Branches with the same kind, sizes and parameter shapes compute the same, with the layers that follow
  /// them, except for the first and the last block of the model. Empty: like no other branch.
  std::string kind = {};
  int block = 0;  ///< ascending; branches of one block are assigned together under `unit: block`
  StreamElements stream = {};
  int64_t hidden_width = 0;
  /// Slices begin at multiples of the granularity if the width allows it. 1: the hidden units are attention
  /// heads, and a branch may have fewer heads than the requested number of slices.
  int64_t granularity = 1;
  Flops flops = {};
  /// The FLOPs of layers that are not sliced. In neuron construction every worker computes them, but only
  /// forward if it has no slice. A slice accounts for the remaining FLOPs by its share of the width.
  Flops unsliced_flops = {};
};

struct ModelLayout {
  std::string name;
  std::vector<ParameterLayout> parameters;  ///< in order of depth
  std::vector<BufferLayout> buffers;        ///< in order of depth
  std::vector<BranchLayout> branches;       ///< in order of depth
  /// Outside the branches. `input_gradient` has the gradients of weights as well: they are always trained.
  Flops shared_flops = {};

  int64_t parameter_count() const;
  /// Index of the parameter with this name. Throws std::logic_error if there is none.
  int parameter_index(const std::string& parameter_name) const;
};

/// The dimensions of a parameter or buffer from the slowest to the fastest in the order of its elements. A
/// convolution's weight [out, in, k, k] is stored as [out, k, k, in] (channels_last), which kernels read
/// without a copy; everything else is in row-major order.
std::vector<int64_t> storage_order(size_t dimensions);

/// Type of a parameter's elements. Normalization parameters stay fp32 in a bf16 run.
ElementType element_type(const ParameterLayout& parameter, Precision precision);

}  // namespace sdp
