#include "data/pipeline/mixing.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "data/random.h"

namespace sdp {

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
