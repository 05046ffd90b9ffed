#include "feed/batch.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "model/tensor_source.h"

namespace sdp {

namespace {

/// The values on the device, in the given type.
template <class T, class Allocator>
at::Tensor moved(std::vector<T, Allocator> values, at::IntArrayRef shape, at::ScalarType type,
                 at::Device device) {
  const auto owner = std::make_shared<std::vector<T, Allocator>>(std::move(values));
  const at::Tensor host = at::from_blob(
      owner->data(), shape, [owner](void*) {}, c10::CppTypeToScalarType<T>::value);
  if (device.is_cuda()) return host.pin_memory().to(device, /*non_blocking=*/true).to(type);
  return host.to(type);
}

}  // namespace

TensorBatch to_tensors(Batch batch, Precision precision, at::Device device) {
  const auto size = static_cast<int64_t>(batch.samples.size());
  TensorBatch tensors{
      .mix = batch.mix, .samples = std::move(batch.samples), .skipped = std::move(batch.skipped)};
  if (!batch.tokens.empty()) {
    const int64_t row = static_cast<int64_t>(batch.tokens.size()) / size;
    const at::Tensor tokens = moved(std::move(batch.tokens), {size, row}, at::kLong, device);
    tensors.input = tokens.slice(1, 0, row - 1).contiguous();
    tensors.labels = tokens.slice(1, 1, row).contiguous();
    return tensors;
  }
  const auto [channels, height, width] = batch.image_shape;
  tensors.input = moved(std::move(batch.images), {size, channels, height, width},
                        scalar_type(compute_type(precision)), device);
  tensors.labels = moved(std::move(batch.labels), {size}, at::kLong, device);
  if (!batch.mixed_labels.empty())
    tensors.mixed_labels = moved(std::move(batch.mixed_labels), {size}, at::kLong, device);
  return tensors;
}

}  // namespace sdp
