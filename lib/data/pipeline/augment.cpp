#include "data/pipeline/augment.h"

#include <algorithm>
#include <stdexcept>

#include "data/random.h"

namespace sdp {

namespace {

constexpr int64_t kPadding = 4;

bool contains(std::span<const Augmentation> steps, Augmentation step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

}  // namespace

CropFlip draw_crop_flip(std::span<const Augmentation> steps, uint64_t seed, int64_t position) {
  const auto stream = static_cast<uint64_t>(position);
  CropFlip choice;
  if (contains(steps, Augmentation::kCrop)) {
    CounterRandom random(seed, RandomPurpose::kCrop, stream);
    choice.shift_y = static_cast<int64_t>(random.below(2 * kPadding + 1)) - kPadding;
    choice.shift_x = static_cast<int64_t>(random.below(2 * kPadding + 1)) - kPadding;
  }
  if (contains(steps, Augmentation::kFlip))
    choice.flip = CounterRandom(seed, RandomPurpose::kFlip, stream).below(2) == 1;
  return choice;
}

ImageTransform::ImageTransform(ImageShape shape, const Normalization& normalization) : shape_(shape) {
  const auto channels = static_cast<size_t>(shape.channels);
  if (normalization.mean.size() != channels || normalization.stddev.size() != channels)
    throw std::logic_error("ImageTransform: normalization and image differ in channels");
  value_of_.resize(channels);
  for (size_t channel = 0; channel < channels; ++channel)
    for (size_t pixel = 0; pixel < 256; ++pixel)
      value_of_[channel][pixel] =
          (static_cast<float>(pixel) / 255.0F - static_cast<float>(normalization.mean[channel])) /
          static_cast<float>(normalization.stddev[channel]);
}

void ImageTransform::normalize(std::span<const uint8_t> chw, std::span<float> out) const {
  crop_flip_and_normalize(chw, {}, out);
}

void ImageTransform::augment(std::span<const uint8_t> chw, std::span<const Augmentation> steps, uint64_t seed,
                             int64_t position, std::span<float> out) const {
  crop_flip_and_normalize(chw, draw_crop_flip(steps, seed, position), out);
}

void ImageTransform::crop_flip_and_normalize(std::span<const uint8_t> chw, const CropFlip& choice,
                                             std::span<float> out) const {
  const auto [shift_y, shift_x, flip] = choice;
  const auto [channels, height, width] = shape_;
  if (static_cast<int64_t>(chw.size()) != shape_.numel() || out.size() != chw.size())
    throw std::logic_error("ImageTransform: a span does not fit an image");
  // Columns of the output, before the flip, that lie inside the image.
  const int64_t begin_x = std::clamp<int64_t>(-shift_x, 0, width);
  const int64_t end_x = std::clamp<int64_t>(width - shift_x, begin_x, width);

  for (int64_t channel = 0; channel < channels; ++channel) {
    const float* value_of = value_of_[static_cast<size_t>(channel)].data();
    for (int64_t y = 0; y < height; ++y) {
      float* out_row = out.data() + (channel * height + y) * width;
      const int64_t source_y = y + shift_y;
      if (source_y < 0 || source_y >= height) {
        std::fill_n(out_row, width, value_of[0]);
        continue;
      }
      const uint8_t* source = chw.data() + (channel * height + source_y) * width + shift_x;
      std::fill_n(out_row, begin_x, value_of[0]);
      for (int64_t x = begin_x; x < end_x; ++x)
        out_row[x] = value_of[source[x]];
      std::fill_n(out_row + end_x, width - end_x, value_of[0]);
      if (flip) std::reverse(out_row, out_row + width);
    }
  }
}

}  // namespace sdp
