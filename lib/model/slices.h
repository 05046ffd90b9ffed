#pragma once

// Slice rules applied to tensors (subnet/layout.h).

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "subnet/plan.h"

namespace sdp {

/// View of hidden range [begin, end) of a tensor that holds `hidden` hidden units, with its sliced dimension
/// divided in two, [.., blocks, (end - begin) * elements_per_hidden, ..]: the order of a piece's elements.
at::Tensor slice_view(const at::Tensor& tensor, const SliceRule& rule, int64_t hidden, int64_t begin,
                      int64_t end);

/// Shape of a tensor of the full model's shape `full` cut down to `hidden` of `full_hidden` hidden units.
std::vector<int64_t> sliced_shape(const std::vector<int64_t>& full, const SliceRule& rule, int64_t hidden,
                                  int64_t full_hidden);

/// Views of the units' pieces, one each, in a tensor that holds these units one after another: a parameter of
/// the full model with all of its branch's units, or a part of a worker. For a parameter that is not sliced,
/// or a whole branch, the tensor itself.
std::vector<at::Tensor> piece_views(const at::Tensor& tensor, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units);

/// Shape of a parameter or buffer of shape `full` that holds these units.
std::vector<int64_t> shape_of_units(const std::vector<int64_t>& full, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units);

}  // namespace sdp
