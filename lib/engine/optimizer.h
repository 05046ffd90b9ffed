#pragma once

// Update rules on flat tensors. An optimizer knows nothing of models, buckets or processes.

#include <ATen/core/Tensor.h>

#include <vector>

#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// Applies the rule in place. SGD as torch.optim.SGD (L2 term added to the gradient), AdamW as
/// torch.optim.AdamW (decoupled decay), both by ATen's fused kernels. `step_count` (fp32, one element, on the
/// tensors' device) is the number of this update, from 1. `moments`: in the order of moment_names(); all of
/// them, `values` and `gradient` have the same size and type.
void update(const OptimizerSpec& spec, double lr, double weight_decay, const at::Tensor& step_count,
            const at::Tensor& values, const at::Tensor& gradient, const std::vector<at::Tensor>& moments);

}  // namespace sdp
