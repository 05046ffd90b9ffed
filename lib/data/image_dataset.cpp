#include <fmt/format.h>

#include <stdexcept>

#include "data/augment.h"
#include "data/dataset.h"
#include "data/mixing.h"
#include "spec/error.h"

namespace sdp {

namespace {

Batch empty_batch(size_t size, const ImageShape& shape) {
  return {.samples = std::vector<int64_t>(size),
          .image_shape = shape,
          .images = std::vector<float>(size * static_cast<size_t>(shape.numel())),
          .labels = std::vector<int64_t>(size)};
}

/// Image `place` of the batch, [C, H, W].
std::span<float> image_of(Batch& batch, size_t place) {
  const auto numel = static_cast<size_t>(batch.image_shape.numel());
  return std::span(batch.images).subspan(place * numel, numel);
}

}  // namespace

void ImageDataset::check_fits(const ModelSpec& model) const {
  if (model.num_classes != num_classes())
    throw UsageError(
        fmt::format("model.num_classes: {}, but the data set has {} classes. Set model.num_classes: {}.",
                    model.num_classes, num_classes(), num_classes()));
  const auto [channels, height, width] = shape();
  if (*model.image_size != height || *model.image_size != width)
    throw UsageError(
        fmt::format("model.image_size: {}, but the data set's images are {} x {}. Set model.image_size: {}.",
                    *model.image_size, height, width, height));
}

void ImageDataset::read_for_training(int64_t index, std::span<const Augmentation>, uint64_t, int64_t,
                                     std::span<uint8_t> chw) const {
  read(index, chw);
}

Batch ImageDataset::training_batch(std::span<const TrainingSample> samples,
                                   const ImageAugmentation& augmentation, uint64_t seed,
                                   const std::stop_token& stop) const {
  const ImageTransform transform(shape(), normalization());
  Batch batch = empty_batch(samples.size(), shape());
  std::vector<uint8_t> pixels(static_cast<size_t>(shape().numel()));
  for (size_t i = 0; i < samples.size(); ++i) {
    if (stop.stop_requested()) return batch;
    const auto [position, index] = samples[i];
    batch.samples[i] = index;
    batch.labels[i] = label(index);
    read_for_training(index, augmentation.steps, seed, position, pixels);
    transform.augment(pixels, augmentation.steps, seed, position, image_of(batch, i));
  }
  if (!samples.empty()) mix_batch(batch, augmentation, seed, samples.front().position);
  return batch;
}

Batch ImageDataset::eval_batch(int64_t begin, int64_t end) const {
  if (begin < 0 || end < begin || end > size())
    throw std::logic_error("eval_batch: images outside the data set");
  const ImageTransform transform(shape(), normalization());
  Batch batch = empty_batch(static_cast<size_t>(end - begin), shape());
  std::vector<uint8_t> pixels(static_cast<size_t>(shape().numel()));
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const int64_t index = begin + static_cast<int64_t>(i);
    batch.samples[i] = index;
    batch.labels[i] = label(index);
    read(index, pixels);
    transform.normalize(pixels, image_of(batch, i));
  }
  return batch;
}

}  // namespace sdp
