#pragma once

// An independent implementation of the model `mlp` in every regime: the whole model in plain tensor
// operations on the CPU, with 0/1 masks instead of subnetworks. From lib/model and lib/engine it uses only
// the plan, which defines who owns what.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "optim/optimizer_spec.h"
#include "subnet/plan.h"

namespace sdp {

/// All parameters, fp64 on the CPU, in the full model's shapes and the layout's order.
using FullValues = std::vector<at::Tensor>;

struct MlpBatch {
  at::Tensor images;  ///< [B, 3, S, S], fp64
  at::Tensor labels;  ///< [B], int64
};

/// Trains `values` in place. In each step, computes every worker's gradient of the mean cross-entropy of its
/// own batch, averages each element over the workers that own it, and applies SGD with momentum and weight
/// decay.
void train_masked_mlp(FullValues& values, const SubnetPlan& plan, const OptimizerSpec& sgd, int64_t steps,
                      const std::function<MlpBatch(int64_t step, int worker)>& batch_of);

}  // namespace sdp
