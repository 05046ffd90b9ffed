#pragma once

// Slice rules applied to tensors (subnet/layout.h).

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "subnet/plan.h"

namespace sdp {

/// Views of the units' pieces, one each, in a tensor that holds these units one after another: a parameter of
/// the full model with all of its branch's units, or a part of a worker. For a parameter that is not sliced,
/// or a whole branch, the tensor itself.
std::vector<at::Tensor> piece_views(const at::Tensor& tensor, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units);

/// The view of one of these units; std::logic_error where it is none of them.
at::Tensor piece_view(const at::Tensor& tensor, const std::optional<SliceRule>& rule, const SubnetPlan& plan,
                      const std::vector<int>& units, int unit);

/// Shape of a parameter or buffer of shape `full` that holds these units.
std::vector<int64_t> shape_of_units(const std::vector<int64_t>& full, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units);

}  // namespace sdp
