#include "engine/optimizer.h"

#include <ATen/ATen.h>

namespace sdp {

void update(const OptimizerSpec& spec, double lr, double weight_decay, const at::Tensor& step_count,
            const UpdateTensors& tensors) {
  if (tensors.empty()) return;
  if (spec.name == OptimizerName::kAdamW) {
    const std::vector<at::Tensor> steps(tensors.values.size(), step_count);
    at::_fused_adamw_(tensors.values, tensors.gradients, tensors.moments[0], tensors.moments[1],
                      /*max_exp_avg_sqs=*/{}, steps, lr, spec.beta1, spec.beta2, weight_decay, spec.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
    return;
  }
  // A zero momentum buffer makes the first step the same as any other, as there is no dampening.
  const at::TensorList buffers =
      tensors.moments.empty() ? at::TensorList() : at::TensorList(tensors.moments[0]);
  at::_fused_sgd_(tensors.values, tensors.gradients, buffers, weight_decay, spec.momentum, lr,
                  /*dampening=*/0, spec.nesterov, /*maximize=*/false, /*is_first_step=*/false);
}

}  // namespace sdp
