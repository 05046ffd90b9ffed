#include "train/loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "model/tensor_source.h"
#include "spec/error.h"

namespace sdp {

at::Tensor classification_loss(const at::Tensor& logits, const at::Tensor& labels, const TrainSpec& spec) {
  return at::cross_entropy_loss(logits.to(scalar_type(sum_type(spec.precision))), labels, /*weight=*/{},
                                at::Reduction::Mean, /*ignore_index=*/-100, spec.label_smoothing);
}

void check_data_fits_model(const ModelSpec& model, const ImageDataset& dataset) {
  if (model.num_classes != dataset.num_classes())
    throw UsageError(
        fmt::format("model.num_classes: {}, but the data set has {} classes. Set model.num_classes: {}.",
                    model.num_classes, dataset.num_classes(), dataset.num_classes()));
  const ImageShape shape = dataset.shape();
  if (*model.image_size != shape.height || *model.image_size != shape.width)
    throw UsageError(
        fmt::format("model.image_size: {}, but the data set's images are {} x {}. Set model.image_size: {}.",
                    *model.image_size, shape.height, shape.width, shape.height));
}

}  // namespace sdp
