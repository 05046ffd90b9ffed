#include "engine/optimizer.h"

#include <ATen/ATen.h>

namespace sdp {

void update(const OptimizerSpec& spec, double lr, double weight_decay, const at::Tensor& step_count,
            const at::Tensor& values, const at::Tensor& gradient, const std::vector<at::Tensor>& moments) {
  if (spec.name == OptimizerName::kAdamW) {
    at::_fused_adamw_(values, gradient, moments.at(0), moments.at(1), /*max_exp_avg_sqs=*/{}, step_count, lr,
                      spec.beta1, spec.beta2, weight_decay, spec.eps, /*amsgrad=*/false, /*maximize=*/false);
    return;
  }
  // A zero momentum buffer makes the first step the same as any other, as there is no dampening.
  const at::TensorList buffers = moments.empty() ? at::TensorList() : at::TensorList(moments);
  at::_fused_sgd_(values, gradient, buffers, weight_decay, spec.momentum, lr, /*dampening=*/0, spec.nesterov,
                  /*maximize=*/false, /*is_first_step=*/false);
}

}  // namespace sdp
