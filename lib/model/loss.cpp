#include "model/loss.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "model/linear_cross_entropy.h"
#include "model/logit_rows.h"
#include "ops/availability.h"

namespace sdp {

TrainingLoss training_loss(const at::Tensor& features, const Head& head, const Targets& targets,
                           double label_smoothing) {
  const bool is_language_model = features.dim() == 3;
  if (is_language_model)
    return {linear_cross_entropy(
        features.flatten(0, 1), head.weight, targets.labels.flatten(), label_smoothing,
        logit_rows_at_a_time(head.weight.size(0), features.is_cuda() && ops::has_device_kernels()))};
  const at::ScalarType type = at::toOpMathType(features.scalar_type());
  const at::Tensor logits = at::linear(features, head.weight, head.bias).to(type);
  const auto loss_of = [&](const at::Tensor& labels) {
    return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean,
                                  /*ignore_index=*/-100, label_smoothing);
  };
  const at::Tensor loss = loss_of(targets.labels);
  if (!targets.mixed_labels.defined()) return {loss, logits.detach().argmax(1).eq(targets.labels).sum()};
  return {targets.mix * loss + (1 - targets.mix) * loss_of(targets.mixed_labels)};
}

}  // namespace sdp
