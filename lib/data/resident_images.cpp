#include "data/resident_images.h"

#include <ATen/ATen.h>

#include <utility>

#include "layers/tensors.h"
#include "process/allocations.h"

namespace sdp {

namespace {

constexpr int64_t kPixelValues = 256;

/// The normalized value of every pixel value, by channel: [C, 256].
at::Tensor normalized_values(const ImageArray& array) {
  const ImageShape ramp{.channels = array.shape.channels, .height = 1, .width = kPixelValues};
  std::vector<uint8_t> pixels(static_cast<size_t>(ramp.numel()));
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(i % kPixelValues);
  const at::Tensor values = at::empty({ramp.numel()}, at::kFloat);
  ImageTransform(ramp, array.normalization)
      .normalize(pixels, {values.data_ptr<float>(), static_cast<size_t>(ramp.numel())});
  return values.view({ramp.channels, kPixelValues});
}

/// images = share * images + (1 - share) * partners, or a box of the partners pasted in; with the same
/// rounding as data/augment.cpp.
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
  const at::Tensor pixels = blob(array.pixels, {array.size(), channels, height, width}).to(device, at::kByte);
  pixels_ = at::constant_pad_nd(pixels, {0, 1, 0, 1});
  labels_ = blob(array.labels, {array.size()}).to(device, at::kLong);
  values_ = normalized_values(array).to(device);
  channels_ = at::arange(channels, labels_.options()).view({1, channels, 1, 1});
  for (const at::Tensor& kept : {pixels_, labels_, values_, channels_})
    leave_out(kept);  // they are data, not part of a step, and plans do not include them
}

TensorBatch ResidentImages::batch_of(std::vector<int64_t> samples,
                                     const std::vector<CropFlip>& choices) const {
  const auto [channels, height, width] = shape_;
  const auto size = static_cast<int64_t>(samples.size());
  const at::Tensor host =
      at::empty({size, 1 + height + width}, at::TensorOptions(at::kLong).pinned_memory(device_.is_cuda()));
  int64_t* next = host.data_ptr<int64_t>();
  for (size_t i = 0; i < samples.size(); ++i) {
    const CropFlip& choice = choices[i];
    const auto inside = [](int64_t at, int64_t end) { return at >= 0 && at < end ? at : end; };
    *next++ = samples[i];
    for (int64_t row = 0; row < height; ++row)
      *next++ = inside(row + choice.shift_y, height);
    for (int64_t column = 0; column < width; ++column)
      *next++ = inside((choice.flip ? width - 1 - column : column) + choice.shift_x, width);
  }
  const at::Tensor chosen = host.to(device_, /*non_blocking=*/true);
  const at::Tensor image = chosen.select(1, 0);
  const at::Tensor pixels = pixels_.index({image.view({-1, 1, 1, 1}), channels_,
                                           chosen.narrow(1, 1, height).unsqueeze(1).unsqueeze(3),
                                           chosen.narrow(1, 1 + height, width).unsqueeze(1).unsqueeze(1)});
  return {.input = values_.index({channels_, pixels.to(at::kLong)}),
          .labels = labels_.index({image}),
          .samples = std::move(samples)};
}

TensorBatch ResidentImages::training_batch(std::span<const TrainingSample> samples,
                                           const ImageAugmentation& augmentation, uint64_t seed) const {
  std::vector<int64_t> indices;
  std::vector<CropFlip> choices;
  for (const TrainingSample& sample : samples) {
    indices.push_back(sample.index);
    choices.push_back(draw_crop_flip(augmentation.steps, seed, sample.position));
  }
  TensorBatch batch = batch_of(std::move(indices), choices);
  if (const auto mixing = draw_mixing(augmentation, shape_, seed, samples.front().position)) {
    batch.input = mixed(batch.input, *mixing);
    batch.mixed_labels = batch.labels.roll(1, 0);
    batch.mix = mixing->share;
  }
  batch.input = batch.input.to(type_);
  return batch;
}

TensorBatch ResidentImages::eval_batch(std::span<const int64_t> samples) const {
  TensorBatch batch = batch_of({samples.begin(), samples.end()}, std::vector<CropFlip>(samples.size()));
  batch.input = batch.input.to(type_);
  return batch;
}

}  // namespace sdp
