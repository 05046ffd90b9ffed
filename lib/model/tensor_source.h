#pragma once

// The tensors of a layout: where a model finds them, their types, how they begin.

#include <ATen/core/Tensor.h>

#include <string>

#include "subnet/layout.h"

namespace sdp {

/// Where a model finds its tensors, by the names of the layout. What a holder has of a branch's hidden width
/// comes in *parts*, each a smaller branch of its own whose sum is the branch: one part for a whole branch or
/// the slices a worker owns, two where it also has frozen slices beside them (first owned, then frozen), none
/// where it has no slice. A frozen tensor does not require a gradient. A parameter that is not sliced is in
/// part 0.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual int parts(int branch) const = 0;
  at::Tensor parameter(const std::string& name, int part = 0) const { return find_parameter(name, part); }
  at::Tensor buffer(const std::string& name, int part = 0) const { return find_buffer(name, part); }

 private:
  virtual at::Tensor find_parameter(const std::string& name, int part) const = 0;
  virtual at::Tensor find_buffer(const std::string& name, int part) const = 0;
};

at::ScalarType scalar_type(ElementType type);

/// Initial values of a parameter, fp32 on the CPU in the full model's shape, drawn from a seed of its own
/// that follows from `seed` and the parameter's name: the same whoever draws it and in whatever order.
at::Tensor draw_parameter(const ParameterLayout& parameter, uint64_t seed);

}  // namespace sdp
