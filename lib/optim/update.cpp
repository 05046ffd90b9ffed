#include "optim/update.h"

#include <ATen/ATen.h>

namespace sdp {

void update(const OptimizerSpec& spec, const UpdateStep& step, const UpdateTensors& tensors) {
  UpdateTensors of_rule = tensors;
  const bool averages = spec.ema_decay > 0;
  if (averages) of_rule.state.pop_back();
  spec.rule.visit([&](const auto& rule) { update(rule, step, of_rule); });
  if (!averages) return;
  const at::Tensor& average = tensors.state.back();
  if (step.is_first) {
    average.copy_(tensors.values);
  } else {
    average.lerp_(tensors.values, 1 - spec.ema_decay);
  }
}

}  // namespace sdp
