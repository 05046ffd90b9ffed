#pragma once

// Update rules on flat tensors. An optimizer knows nothing of models, buckets or processes.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "spec/experiment_spec.h"

namespace sdp {

/// Tensors of one update: same sizes and types, moments in the order of moment_names().
struct UpdateTensors {
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> gradients;
  std::vector<std::vector<at::Tensor>> moments;  ///< one list for each moment

  bool empty() const { return values.empty(); }
};

/// Applies the rule in place. SGD as torch.optim.SGD (L2 term added to the gradient), AdamW as
/// torch.optim.AdamW (decoupled decay), both by ATen's fused kernels. `step_count` (fp32, one element, on the
/// tensors' device) is the number of this update, from 1.
void update(const OptimizerSpec& spec, double lr, double weight_decay, const at::Tensor& step_count,
            const UpdateTensors& tensors);

}  // namespace sdp
