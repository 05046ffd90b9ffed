#include "train/loss.h"

#include <ATen/ATen.h>

#include "model/linear_cross_entropy.h"
#include "model/logit_rows.h"
#include "model/tensor_source.h"

namespace sdp {

TrainingLoss training_loss(const at::Tensor& features, const Head& head, const TensorBatch& batch,
                           const TrainSpec& spec) {
  const bool is_language_model = features.dim() == 3;
  if (is_language_model)
    return {linear_cross_entropy(features.flatten(0, 1), head.weight, batch.labels.flatten(),
                                 spec.label_smoothing, logit_rows_at_a_time(head.weight.size(0)))};
  const at::Tensor logits =
      at::linear(features, head.weight, head.bias).to(scalar_type(sum_type(spec.precision)));
  const auto loss_of = [&](const at::Tensor& labels) {
    return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean,
                                  /*ignore_index=*/-100, spec.label_smoothing);
  };
  const at::Tensor loss = loss_of(batch.labels);
  if (!batch.mixed_labels.defined()) return {loss, logits.detach().argmax(1).eq(batch.labels).sum()};
  return {batch.mix * loss + (1 - batch.mix) * loss_of(batch.mixed_labels)};
}

}  // namespace sdp
