#pragma once

// Applies update rules to lists of tensors. A rule does not depend on models, buckets or processes.

#include <ATen/core/Tensor.h>

#include <vector>

#include "optim/optimizer_spec.h"

namespace sdp {

struct UpdateStep {
  double lr = 0;
  double weight_decay = 0;  ///< 0 if these values do not decay
  at::Tensor number = {};   ///< number of this update, from 1: fp32, one element, on the tensors' device
  bool is_first = false;    ///< whether that number is 1
};

/// Lists of as many tensors, which have the same types and, at the same place, the same sizes.
struct UpdateTensors {
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> gradients;                ///< discarded after the update, which may overwrite them
  std::vector<std::vector<at::Tensor>> state = {};  ///< in the order of state_names()
};

/// Applies the rule in place, then averages the new values (optimizer.ema_decay) as
/// torch.optim.swa_utils.AveragedModel does: the first average is a copy. A rule allocates no other tensors:
/// forecasts of the peak count none.
void update(const OptimizerSpec& spec, const UpdateStep& step, const UpdateTensors& tensors);

}  // namespace sdp
