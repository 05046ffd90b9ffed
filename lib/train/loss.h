#pragma once

#include <ATen/core/Tensor.h>

#include "data/dataset.h"
#include "spec/experiment_spec.h"

namespace sdp {

/// Mean cross-entropy of logits [B, K] and labels [B], in fp32 (fp64 in an fp64 run), with the spec's label
/// smoothing.
at::Tensor classification_loss(const at::Tensor& logits, const at::Tensor& labels, const TrainSpec& spec);

/// UsageError where the model's classes or image size are not the data set's.
void check_data_fits_model(const ModelSpec& model, const ImageDataset& dataset);

}  // namespace sdp
