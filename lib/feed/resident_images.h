#pragma once

// Images kept on the device and augmented there; fast for small images.
//
// Shape symbols: N images, B batch size, C channels, H height, W width.

#include <span>

#include "data/pipeline/batches.h"
#include "data/sets/image_array.h"
#include "feed/batch.h"

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
  /// Pixels of the chosen images, cropped, flipped and normalized, fp32 [B, C, H, W]. `choices`: int64 [4,
  /// B], on the device: image, shift_y, shift_x, flip (data/pipeline/augment.h).
  at::Tensor images(const at::Tensor& choices) const;
  TensorBatch batch_of(std::vector<int64_t> samples, std::vector<int64_t> choices) const;

  ImageShape shape_;
  at::ScalarType type_;
  at::Device device_;
  at::Tensor pixels_;  ///< [N, C, H, W] uint8
  at::Tensor labels_;  ///< [N] int64
  at::Tensor values_;  ///< [C * 256] fp32: the normalized value of every pixel value
};

}  // namespace sdp
