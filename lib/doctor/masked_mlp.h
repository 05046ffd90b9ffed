#pragma once

// The model `mlp` in every regime, written once more: the whole model in plain tensor operations on the CPU,
// with 0/1 masks in the place of subnetworks. Uses nothing of lib/model and lib/engine but the plan, which
// says who owns what.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "optim/optimizer_spec.h"
#include "subnet/plan.h"

namespace sdp {

/// The values of all parameters, fp64 on the CPU, in the full model's shapes and the layout's order.
using FullValues = std::vector<at::Tensor>;

struct MlpBatch {
  at::Tensor images;  ///< [B, 3, S, S], fp64
  at::Tensor labels;  ///< [B], int64
};

/// Trains `values` in place: in each step every worker's gradient of the mean cross-entropy of its own batch,
/// averaged for each element over the workers that own it, and SGD with momentum and weight decay.
void train_masked_mlp(FullValues& values, const SubnetPlan& plan, const OptimizerSpec& sgd, int64_t steps,
                      const std::function<MlpBatch(int64_t step, int worker)>& batch_of);

}  // namespace sdp
