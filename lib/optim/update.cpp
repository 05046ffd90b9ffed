#include "optim/update.h"

#include <ATen/ATen.h>

namespace sdp {

void update(const OptimizerSpec& spec, const UpdateStep& step, const UpdateTensors& tensors) {
  UpdateTensors of_rule = tensors;
  const bool averages = spec.ema_decay > 0;
  if (averages) of_rule.state.pop_back();
  spec.rule.visit([&](const auto& rule) { update(rule, step, of_rule); });
  if (!averages) return;
  const std::vector<at::Tensor>& average = tensors.state.back();
  if (step.is_first) {
    at::_foreach_copy_(average, tensors.values);
  } else {
    at::_foreach_lerp_(average, tensors.values, 1 - spec.ema_decay);
  }
}

}  // namespace sdp
