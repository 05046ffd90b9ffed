#include <fmt/format.h>

#include <stdexcept>

#include "data/augment.h"
#include "data/dataset.h"
#include "spec/error.h"

namespace sdp {

namespace {

Batch empty_batch(size_t size, const ImageShape& shape) {
  return {.samples = std::vector<int64_t>(size),
          .image_shape = shape,
          .images = Buffer<float>(size * static_cast<size_t>(shape.numel())),
          .labels = std::vector<int64_t>(size)};
}

/// Image number `place` of the batch, [C, H, W].
std::span<float> image_of(Batch& batch, size_t place) {
  const auto numel = static_cast<size_t>(batch.image_shape.numel());
  return std::span(batch.images).subspan(place * numel, numel);
}

[[noreturn]] void refuse_to_skip_on(const std::string& last) {
  throw DataError(fmt::format("{} images are damaged, more than data.on_error: skip allows; the last: {}",
                              ImageDataset::kMostSkipped, last));
}

}  // namespace

void ImageDataset::check_fits(const ModelSpec& model, const OnProgress&) const {
  if (model.num_classes() != num_classes())
    throw UsageError(
        fmt::format("model.num_classes: {}, but the data set has {} classes. Set model.num_classes: {}.",
                    model.num_classes(), num_classes(), num_classes()));
  const auto [channels, height, width] = shape();
  if (model.image_size() != height || model.image_size() != width)
    throw UsageError(
        fmt::format("model.image_size: {}, but the data set's images are {} x {}. Set model.image_size: {}.",
                    model.image_size(), height, width, height));
  if (model.image_channels() != channels)
    throw UsageError(fmt::format(
        "model.image_channels: {}, but the data set's images have {}. Set model.image_channels: {}.",
        model.image_channels(), channels, channels));
}

void ImageDataset::read_for_training(int64_t index, std::span<const Augmentation>, uint64_t, int64_t,
                                     std::span<uint8_t> chw) const {
  read(index, chw);
}

/// Whether `read` succeeded. Under on_error: skip, the message of a damaged image is stored; otherwise the
/// error propagates.
bool ImageDataset::reads(std::vector<std::string>& skipped, const std::function<void()>& read) const {
  try {
    read();
    return true;
  } catch (const DamagedImageError& error) {
    if (on_error_ == OnError::kError) throw;
    skipped.emplace_back(error.what());
    return false;
  }
}

Batch ImageDataset::training_batch(std::span<const TrainingSample> samples,
                                   const ImageAugmentation& augmentation, uint64_t seed,
                                   const std::stop_token& stop) const {
  const ImageTransform transform(shape(), normalization());
  Batch batch = empty_batch(samples.size(), shape());
  std::vector<uint8_t> pixels(static_cast<size_t>(shape().numel()));
  for (size_t i = 0; i < samples.size(); ++i) {
    if (stop.stop_requested()) return batch;
    const int64_t position = samples[i].position;
    int64_t index = samples[i].index;
    const size_t skipped_before = batch.skipped.size();
    while (!reads(batch.skipped,
                  [&] { read_for_training(index, augmentation.steps, seed, position, pixels); })) {
      if (batch.skipped.size() - skipped_before >= kMostSkipped) refuse_to_skip_on(batch.skipped.back());
      index = (index + 1) % size();
    }
    batch.samples[i] = index;
    batch.labels[i] = label(index);
    transform.augment(pixels, augmentation.steps, seed, position, image_of(batch, i));
  }
  if (!samples.empty()) mix_batch(batch, augmentation, seed, samples.front().position);
  return batch;
}

Batch ImageDataset::eval_batch(std::span<const int64_t> samples) const {
  const ImageTransform transform(shape(), normalization());
  Batch batch = empty_batch(samples.size(), shape());
  std::vector<uint8_t> pixels(static_cast<size_t>(shape().numel()));
  size_t place = 0;
  for (const int64_t index : samples) {
    if (index < 0 || index >= size()) throw std::logic_error("eval_batch: no such image in the data set");
    if (!reads(batch.skipped, [&] { read(index, pixels); })) {
      if (batch.skipped.size() >= kMostSkipped) refuse_to_skip_on(batch.skipped.back());
      continue;
    }
    batch.samples[place] = index;
    batch.labels[place] = label(index);
    transform.normalize(pixels, image_of(batch, place));
    ++place;
  }
  batch.samples.resize(place);
  batch.labels.resize(place);
  batch.images.resize(place * static_cast<size_t>(shape().numel()));
  return batch;
}

}  // namespace sdp
