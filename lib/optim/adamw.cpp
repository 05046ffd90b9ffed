#include "optim/adamw.h"

#include <ATen/ATen.h>

#include "optim/update.h"

namespace sdp {

void update(const AdamWSpec& rule, const UpdateStep& step, const UpdateTensors& tensors) {
  const std::vector<at::Tensor> numbers(tensors.values.size(), step.number);
  at::_fused_adamw_(tensors.values, tensors.gradients, tensors.state.at(0), tensors.state.at(1),
                    /*max_exp_avg_sqs=*/{}, numbers, step.lr, rule.beta1, rule.beta2, step.weight_decay,
                    rule.eps, /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace sdp
