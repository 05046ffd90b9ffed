#pragma once

// The tensors of a layout: where a model finds them, their types and their initial values.

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include <optional>
#include <string>
#include <vector>

#include "subnet/layout.h"
#include "subnet/plan.h"

namespace sdp {

/// Where a model finds its tensors, by their names in the layout. The slices of a branch's hidden width that
/// a holder has are grouped into *parts*. Each part is a smaller branch, and the sum of the parts is the
/// branch. A whole branch, or the slices that a worker owns, are one part. If the worker also has frozen
/// slices, there are two parts, first owned, then frozen. If it has no slice, there is none. A frozen tensor
/// does not require a gradient. A parameter that is not sliced is in part 0.
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

/// Draws the initial values of a network of the user's own (ParameterLayout::own_init).
class OwnInitializer {
 public:
  virtual ~OwnInitializer() = default;
  /// In fp32, on the CPU and in the full model's shape. `seed` follows from the run's seed and is the same
  /// for all parameters.
  virtual at::Tensor draw(const ParameterLayout& parameter, uint64_t seed) const = 0;
};

/// Draws the initial values of a parameter, in fp32, on the CPU and in the full model's shape. They depend
/// only on `seed` and the parameter's name, and not on the process or the order in which parameters are
/// drawn.
at::Tensor draw_parameter(const ParameterLayout& parameter, uint64_t seed);

// Applies slice rules (subnet/layout.h) to tensors.

/// Whether the unit's part of a parameter or buffer with this rule is a slice of it.
bool is_sliced(const std::optional<SliceRule>& rule, const SubnetPlan& plan, int unit);

/// Views of the units' slices, one per unit, in a tensor that holds these units one after another. The tensor
/// is a parameter of the full model, with all units of its branch, or a worker's part. For a parameter that
/// is not sliced, or for a whole branch, the result is a view of the whole tensor. The dimensions of a view
/// are in storage order (subnet/layout.h): row by row, it has the elements in the order of a segment.
std::vector<at::Tensor> slice_views(const at::Tensor& tensor, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units);

/// The view of one of these units. Throws std::logic_error if the tensor does not hold the unit.
at::Tensor slice_view(const at::Tensor& tensor, const std::optional<SliceRule>& rule, const SubnetPlan& plan,
                      const std::vector<int>& units, int unit);

/// Shape of a parameter or buffer of shape `full` that holds these units.
std::vector<int64_t> shape_of_units(const std::vector<int64_t>& full, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units);

/// The format of a tensor whose memory is in storage order.
at::MemoryFormat storage_format(size_t dimensions);

}  // namespace sdp
