#include "train/loss.h"

#include <ATen/ATen.h>

#include "model/tensor_source.h"

namespace sdp {

at::Tensor classification_loss(const at::Tensor& logits, const TensorBatch& batch, const TrainSpec& spec) {
  const at::Tensor rows = logits.flatten(0, -2).to(scalar_type(sum_type(spec.precision)));
  const auto loss_of = [&](const at::Tensor& labels) {
    return at::cross_entropy_loss(rows, labels.flatten(), /*weight=*/{}, at::Reduction::Mean,
                                  /*ignore_index=*/-100, spec.label_smoothing);
  };
  const at::Tensor loss = loss_of(batch.labels);
  if (!batch.mixed_labels.defined()) return loss;
  return batch.mix * loss + (1 - batch.mix) * loss_of(batch.mixed_labels);
}

}  // namespace sdp
