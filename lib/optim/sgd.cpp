#include "optim/sgd.h"

#include <ATen/ATen.h>

#include "optim/update.h"

namespace sdp {

void update(const SgdSpec& rule, const UpdateStep& step, const UpdateTensors& tensors) {
  // Without dampening, a zero momentum buffer makes the first step like any other.
  const at::TensorList buffers =
      tensors.state.empty() ? at::TensorList() : at::TensorList(tensors.state.front());
  at::_fused_sgd_(tensors.values, tensors.gradients, buffers, step.weight_decay, rule.momentum, step.lr,
                  /*dampening=*/0, rule.nesterov, /*maximize=*/false, /*is_first_step=*/false);
}

}  // namespace sdp
