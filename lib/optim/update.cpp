#include "optim/update.h"

#include <ATen/ATen.h>

#include "optim/registry.h"

namespace sdp {

void update(const SgdSpec& rule, const UpdateStep& step, const UpdateTensors& tensors) {
  // Without dampening, a zero momentum buffer makes the first step like any other.
  const at::TensorList buffers =
      tensors.state.empty() ? at::TensorList() : at::TensorList(tensors.state.front());
  at::_fused_sgd_(tensors.values, tensors.gradients, buffers, step.weight_decay, rule.momentum, step.lr,
                  /*dampening=*/0, rule.nesterov, /*maximize=*/false, /*is_first_step=*/false);
}

void update(const AdamWSpec& rule, const UpdateStep& step, const UpdateTensors& tensors) {
  const std::vector<at::Tensor> numbers(tensors.values.size(), step.number);
  at::_fused_adamw_(tensors.values, tensors.gradients, tensors.state.at(0), tensors.state.at(1),
                    /*max_exp_avg_sqs=*/{}, numbers, step.lr, rule.beta1, rule.beta2, step.weight_decay,
                    rule.eps, /*amsgrad=*/false, /*maximize=*/false);
}

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
