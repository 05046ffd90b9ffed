#pragma once

// Images kept on the device and augmented there; fast for small images.
//
// Shape symbols: N images, C channels, H height, W width.

#include <span>

#include "data/augment.h"
#include "data/batches.h"
#include "data/device_loader.h"
#include "data/image_array.h"

namespace sdp {

/// Gives the same values as ImageDataset::training_batch and eval_batch (bit for bit on a CPU): the same
/// random choices, and the same table of normalized values.
class ResidentImages {
 public:
  ResidentImages(const ImageArray& array, Precision precision, at::Device device);

  TensorBatch training_batch(std::span<const TrainingSample> samples, const ImageAugmentation& augmentation,
                             uint64_t seed) const;
  TensorBatch eval_batch(std::span<const int64_t> samples) const;

 private:
  /// The samples, cropped, flipped and normalized, in fp32, whatever the type of the computation.
  TensorBatch batch_of(std::vector<int64_t> samples, const std::vector<CropFlip>& choices) const;

  ImageShape shape_;
  at::ScalarType type_;
  at::Device device_;
  at::Tensor pixels_;    ///< [N, C, H + 1, W + 1] uint8; the last row and column, for pixels outside, are 0
  at::Tensor labels_;    ///< [N] int64
  at::Tensor values_;    ///< [C, 256] fp32: the normalized value of every pixel value
  at::Tensor channels_;  ///< [1, C, 1, 1] int64: 0, 1, ..
};

}  // namespace sdp
