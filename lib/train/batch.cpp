#include "train/batch.h"

#include <ATen/ATen.h>

#include "model/tensor_source.h"

namespace sdp {

namespace {

/// A copy on the device. Through pinned memory the host does not wait for the device; the batch's own memory
/// is free at once either way.
template <class T>
at::Tensor copy_of(const std::vector<T>& values, at::IntArrayRef shape, at::ScalarType type,
                   at::Device device) {
  // from_blob only reads here: `to` with copy makes a tensor of its own.
  const at::Tensor host =
      at::from_blob(const_cast<T*>(values.data()), shape, c10::CppTypeToScalarType<T>::value);
  if (device.is_cuda()) return host.pin_memory().to(device, /*non_blocking=*/true).to(type);
  return host.to(device, type, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

TensorBatch to_tensors(const Batch& batch, Precision precision, at::Device device) {
  const auto size = static_cast<int64_t>(batch.samples.size());
  if (!batch.tokens.empty()) {
    const int64_t row = static_cast<int64_t>(batch.tokens.size()) / size;
    const at::Tensor tokens = copy_of(batch.tokens, {size, row}, at::kLong, device);
    return {.input = tokens.slice(1, 0, row - 1).contiguous(),
            .labels = tokens.slice(1, 1, row).contiguous()};
  }
  const auto [channels, height, width] = batch.image_shape;
  TensorBatch tensors{.input = copy_of(batch.images, {size, channels, height, width},
                                       scalar_type(compute_type(precision)), device),
                      .labels = copy_of(batch.labels, {size}, at::kLong, device),
                      .mix = batch.mix};
  if (!batch.mixed_labels.empty())
    tensors.mixed_labels = copy_of(batch.mixed_labels, {size}, at::kLong, device);
  return tensors;
}

}  // namespace sdp
