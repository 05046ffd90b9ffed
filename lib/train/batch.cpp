#include "train/batch.h"

#include <ATen/ATen.h>

#include "model/tensor_source.h"

namespace sdp {

TensorBatch to_tensors(const ImageBatch& batch, ImageShape shape, Precision precision, at::Device device) {
  const int64_t size = static_cast<int64_t>(batch.labels.size());
  // from_blob only reads here: `to` with copy makes tensors of their own.
  const at::Tensor images = at::from_blob(const_cast<float*>(batch.images.data()),
                                          {size, shape.channels, shape.height, shape.width}, at::kFloat);
  const at::Tensor labels = at::from_blob(const_cast<int64_t*>(batch.labels.data()), {size}, at::kLong);
  const at::ScalarType type = scalar_type(compute_type(precision));
  // Through pinned memory the host does not wait for the device; the batch's own memory is free at once
  // either way.
  if (device.is_cuda())
    return {images.pin_memory().to(device, /*non_blocking=*/true).to(type),
            labels.pin_memory().to(device, /*non_blocking=*/true)};
  return {images.to(device, type, /*non_blocking=*/false, /*copy=*/true),
          labels.to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true)};
}

}  // namespace sdp
