#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "data/random.h"

namespace sdp {
namespace {

constexpr int64_t kPadding = 4;

bool has_step(std::span<const Augmentation> steps, Augmentation step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

}  // namespace

CropFlip draw_crop_flip(std::span<const Augmentation> steps, uint64_t seed, int64_t position) {
  const auto stream = static_cast<uint64_t>(position);
  CropFlip choice;
  if (has_step(steps, Augmentation::kCrop)) {
    CounterRandom random(seed, RandomPurpose::kCrop, stream);
    choice.shift_y = static_cast<int64_t>(random.below(2 * kPadding + 1)) - kPadding;
    choice.shift_x = static_cast<int64_t>(random.below(2 * kPadding + 1)) - kPadding;
  }
  if (has_step(steps, Augmentation::kFlip))
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

namespace {

/// A box with the share 1 - lambda of the image's area, cropped at the border.
Box draw_box(CounterRandom& random, ImageShape shape, double lambda) {
  const auto [channels, height, width] = shape;
  const auto center_x = static_cast<int64_t>(random.below(static_cast<uint64_t>(width)));
  const auto center_y = static_cast<int64_t>(random.below(static_cast<uint64_t>(height)));
  const double half_side = 0.5 * std::sqrt(1 - lambda);
  const auto half_width = static_cast<int64_t>(half_side * static_cast<double>(width));
  const auto half_height = static_cast<int64_t>(half_side * static_cast<double>(height));
  return {.left = std::max<int64_t>(center_x - half_width, 0),
          .top = std::max<int64_t>(center_y - half_height, 0),
          .right = std::min(center_x + half_width, width),
          .bottom = std::min(center_y + half_height, height)};
}

/// image = share * image + (1 - share) * partner.
void blend(std::span<float> image, std::span<const float> partner, double share) {
  const auto own = static_cast<float>(share);
  const auto other = static_cast<float>(1 - share);
  for (size_t i = 0; i < image.size(); ++i)
    image[i] = partner[i] * other + image[i] * own;
}

void paste(std::span<float> image, std::span<const float> partner, const Box& box, ImageShape shape) {
  for (int64_t channel = 0; channel < shape.channels; ++channel)
    for (int64_t y = box.top; y < box.bottom; ++y) {
      const int64_t row = (channel * shape.height + y) * shape.width;
      std::copy(partner.begin() + row + box.left, partner.begin() + row + box.right,
                image.begin() + row + box.left);
    }
}

}  // namespace

std::optional<Mixing> draw_mixing(const ImageAugmentation& augmentation, ImageShape shape, uint64_t seed,
                                  int64_t position) {
  const double mixup_alpha = augmentation.mixup_alpha;
  const double cutmix_alpha = augmentation.cutmix_alpha;
  if (mixup_alpha == 0 && cutmix_alpha == 0) return std::nullopt;
  CounterRandom random(seed, RandomPurpose::kMix, static_cast<uint64_t>(position));
  const bool first_half = random.below(2) == 0;
  const bool mixup = mixup_alpha > 0 && (cutmix_alpha == 0 || first_half);

  const double lambda = random.symmetric_beta(mixup ? mixup_alpha : cutmix_alpha);
  if (mixup) return Mixing{.share = lambda};
  const Box box = draw_box(random, shape, lambda);
  return Mixing{
      .share = 1 - static_cast<double>(box.area()) / static_cast<double>(shape.height * shape.width),
      .box = box};
}

void mix_batch(Batch& batch, const ImageAugmentation& augmentation, uint64_t seed, int64_t position) {
  const ImageShape shape = batch.image_shape;
  const std::optional<Mixing> mixing = draw_mixing(augmentation, shape, seed, position);
  if (!mixing) return;

  // In reverse, so that each partner is still unmixed; the partner of the first image is the last one.
  const auto numel = static_cast<size_t>(shape.numel());
  const auto image = [&](size_t i) { return std::span(batch.images).subspan(i * numel, numel); };
  std::vector<float> last(batch.images.end() - shape.numel(), batch.images.end());
  for (size_t i = batch.labels.size(); i-- > 0;) {
    const std::span<const float> partner = i > 0 ? image(i - 1) : std::span(last);
    if (mixing->box) {
      paste(image(i), partner, *mixing->box, shape);
    } else {
      blend(image(i), partner, mixing->share);
    }
  }
  batch.mix = mixing->share;
  batch.mixed_labels = batch.labels;
  std::rotate(batch.mixed_labels.begin(), batch.mixed_labels.end() - 1, batch.mixed_labels.end());
}

}  // namespace sdp
