#pragma once

// The tensors of a layout: where a model finds them, their types, how they begin.

#include <ATen/core/Tensor.h>

#include <string>

#include "subnet/layout.h"

namespace sdp {

/// Where a model finds its tensors, by the names of the layout.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual at::Tensor parameter(const std::string& name) const = 0;
  virtual at::Tensor buffer(const std::string& name) const = 0;
};

at::ScalarType scalar_type(ElementType type);

/// Initial values of a parameter, fp32 on the CPU in the full model's shape, drawn from a seed of its own
/// that follows from `seed` and the parameter's name: the same whoever draws it and in whatever order.
at::Tensor draw_parameter(const ParameterLayout& parameter, uint64_t seed);

}  // namespace sdp
