#pragma once

// Applies slice rules (subnet/layout.h) to tensors.

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include <optional>
#include <vector>

#include "subnet/plan.h"

namespace sdp {

/// Views of the units' pieces, one per unit, in a tensor that holds these units one after another. The tensor
/// is a parameter of the full model, with all units of its branch, or a worker's part. For a parameter that
/// is not sliced, or for a whole branch, the result is a view of the whole tensor. The dimensions of a view
/// are in storage order (subnet/layout.h): row by row, it has the elements in the order of a segment.
std::vector<at::Tensor> piece_views(const at::Tensor& tensor, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units);

/// The view of one of these units. Throws std::logic_error if the tensor does not hold the unit.
at::Tensor piece_view(const at::Tensor& tensor, const std::optional<SliceRule>& rule, const SubnetPlan& plan,
                      const std::vector<int>& units, int unit);

/// Shape of a parameter or buffer of shape `full` that holds these units.
std::vector<int64_t> shape_of_units(const std::vector<int64_t>& full, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units);

/// The format of a tensor whose memory is in storage order.
at::MemoryFormat storage_format(size_t dimensions);

}  // namespace sdp
