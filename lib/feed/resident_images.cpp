#include "feed/resident_images.h"

#include <ATen/ATen.h>

#include <utility>

#include "data/pipeline/augment.h"
#include "data/pipeline/mixing.h"
#include "memory/allocations.h"
#include "model/tensor_source.h"

namespace sdp {

namespace {

constexpr int64_t kPixelValues = 256;

at::Tensor on_device(const at::Tensor& host, at::Device device) {
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true) : host.clone();
}

/// The normalized value of every pixel value, by channel: [C * 256].
at::Tensor normalized_values(const ImageArray& array) {
  const ImageShape ramp{.channels = array.shape.channels, .height = 1, .width = kPixelValues};
  std::vector<uint8_t> pixels(static_cast<size_t>(ramp.numel()));
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(i % kPixelValues);
  const at::Tensor values = at::empty({ramp.numel()}, at::kFloat);
  ImageTransform(ramp, array.normalization)
      .normalize(pixels, {values.data_ptr<float>(), static_cast<size_t>(ramp.numel())});
  return values;
}

/// images = share * images + (1 - share) * partners, or a box of the partners pasted in; with the same
/// rounding as data/pipeline/mixing.cpp.
at::Tensor mixed(const at::Tensor& images, const Mixing& mixing) {
  const at::Tensor partners = images.roll(1, 0);
  if (!mixing.box) {
    const double own = static_cast<float>(mixing.share);
    const double other = static_cast<float>(1 - mixing.share);
    const at::Tensor theirs = partners.mul(other);
    return theirs.add(images.mul(own));
  }
  const auto [left, top, right, bottom] = *mixing.box;
  const auto boxed = [&](const at::Tensor& of) { return of.slice(2, top, bottom).slice(3, left, right); };
  boxed(images).copy_(boxed(partners));
  return images;
}

}  // namespace

ResidentImages::ResidentImages(const ImageArray& array, Precision precision, at::Device device)
    : shape_(array.shape), type_(scalar_type(compute_type(precision))), device_(device) {
  const auto blob = [](const std::vector<uint8_t>& bytes, at::IntArrayRef shape) {
    return at::from_blob(const_cast<uint8_t*>(bytes.data()), shape, at::kByte);  // only read
  };
  const auto [channels, height, width] = shape_;
  // Without pinned memory, which the allocator would keep for the rest of the run.
  pixels_ = blob(array.pixels, {array.size(), channels, height, width})
                .to(device, at::kByte, /*non_blocking=*/false, /*copy=*/true);
  labels_ = on_device(blob(array.labels, {array.size()}), device).to(at::kLong);
  values_ = on_device(normalized_values(array), device);
  for (const at::Tensor& kept : {pixels_, labels_, values_})
    leave_out(kept);  // they are data, not part of a step, and plans do not include them
}

at::Tensor ResidentImages::images(const at::Tensor& choices) const {
  const auto [channels, height, width] = shape_;
  const auto options = choices.options();
  const auto choice = [&](int64_t row) { return choices[row].view({-1, 1}); };
  const at::Tensor y = at::arange(height, options) + choice(1);  // [B, H]
  const at::Tensor columns = at::arange(width, options);
  const at::Tensor x = at::where(choice(3) == 1, width - 1 - columns, columns) + choice(2);  // [B, W]
  const at::Tensor inside =
      ((y >= 0) & (y < height)).view({-1, 1, height, 1}) & ((x >= 0) & (x < width)).view({-1, 1, 1, width});
  const at::Tensor channel = at::arange(channels, options).view({1, channels, 1, 1});
  const at::Tensor pixels =
      pixels_.index({choices[0].view({-1, 1, 1, 1}), channel, y.clamp(0, height - 1).view({-1, 1, height, 1}),
                     x.clamp(0, width - 1).view({-1, 1, 1, width})});
  return values_.index({pixels.to(at::kLong) * inside + channel * kPixelValues});
}

TensorBatch ResidentImages::batch_of(std::vector<int64_t> samples, std::vector<int64_t> choices) const {
  const auto size = static_cast<int64_t>(samples.size());
  const at::Tensor chosen = on_device(at::from_blob(choices.data(), {4, size}, at::kLong), device_);
  return {.input = images(chosen), .labels = labels_.index({chosen[0]}), .samples = std::move(samples)};
}

TensorBatch ResidentImages::training_batch(std::span<const TrainingSample> samples,
                                           const ImageAugmentation& augmentation, uint64_t seed) const {
  const size_t size = samples.size();
  std::vector<int64_t> indices(size);
  std::vector<int64_t> choices(4 * size);
  for (size_t i = 0; i < size; ++i) {
    const CropFlip choice = draw_crop_flip(augmentation.steps, seed, samples[i].position);
    indices[i] = samples[i].index;
    choices[i] = samples[i].index;
    choices[size + i] = choice.shift_y;
    choices[2 * size + i] = choice.shift_x;
    choices[3 * size + i] = choice.flip ? 1 : 0;
  }
  TensorBatch batch = batch_of(std::move(indices), std::move(choices));
  if (const auto mixing = draw_mixing(augmentation, shape_, seed, samples.front().position)) {
    batch.input = mixed(batch.input, *mixing);
    batch.mixed_labels = batch.labels.roll(1, 0);
    batch.mix = mixing->share;
  }
  batch.input = batch.input.to(type_);
  return batch;
}

TensorBatch ResidentImages::eval_batch(std::span<const int64_t> samples) const {
  std::vector<int64_t> choices(samples.begin(), samples.end());
  choices.resize(4 * samples.size());  // no shift, no flip
  TensorBatch batch = batch_of({samples.begin(), samples.end()}, std::move(choices));
  batch.input = batch.input.to(type_);
  return batch;
}

}  // namespace sdp
