#pragma once

// Augmentation and normalization: from the pixels of an image to the network's input.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/set_row.h"
#include "formats/image.h"

namespace sdp {

/// out[c, y, x] = in[c, y + shift_y, x + shift_x], 0 outside of the image; then mirrored in x if `flip`.
struct CropFlip {
  int64_t shift_y = 0;
  int64_t shift_x = 0;
  bool flip = false;
};

/// A crop of H x W at a random position of the image padded with 4 black pixels on each side, and a
/// horizontal flip with probability 1/2, as far as `steps` includes them. A function of (seed, position)
/// only; `position` is the sample's position in the training order (sampler.h).
CropFlip draw_crop_flip(std::span<const Augmentation> steps, uint64_t seed, int64_t position);

/// Converts uint8 [C, H, W] to float32 [C, H, W]. Thread-safe.
class ImageTransform {
 public:
  ImageTransform(ImageShape shape, const Normalization& normalization);

  /// (x / 255 - mean) / stddev, as float32 operations in this order.
  void normalize(std::span<const uint8_t> chw, std::span<float> out) const;

  /// Applies draw_crop_flip(), then normalize().
  void augment(std::span<const uint8_t> chw, std::span<const Augmentation> steps, uint64_t seed,
               int64_t position, std::span<float> out) const;

 private:
  void crop_flip_and_normalize(std::span<const uint8_t> chw, const CropFlip& choice,
                               std::span<float> out) const;

  ImageShape shape_;
  std::vector<std::array<float, 256>> value_of_;  // [C]: the normalized value of every pixel value
};

// Mixing the images of a batch with each other:
//
// - mixup: Zhang, Cisse, Dauphin, Lopez-Paz, "mixup: Beyond Empirical Risk Minimization" (ICLR 2018).
// - CutMix: Yun, Han, Oh, Chun, Choe, Yoo, "CutMix: Regularization Strategy to Train Strong Classifiers with
//   Localizable Features" (ICCV 2019).
//
// Formulas and pairs are those of torchvision.transforms.v2: sample b is mixed with sample b - 1, the first
// with the last, with the same share for the whole batch. If both are on, each is used for half of the
// batches (RandomChoice in torchvision's training recipe).

/// How one batch is mixed.
struct Mixing {
  double share = 1;             ///< weight of the sample itself; the partner has the rest
  std::optional<Box> box = {};  ///< CutMix: the area replaced by the partner; unset: mixup
};

/// The choices for the batch whose first sample is at `position` of the training order, a function of (seed,
/// position) only; std::nullopt if both are off. The share is drawn from Beta(alpha, alpha). In CutMix, the
/// box has the share 1 - lambda of the image's area around a uniformly drawn center and is cropped at the
/// border; the share is the area outside of the box.
std::optional<Mixing> draw_mixing(const ImageAugmentation& augmentation, ImageShape shape, uint64_t seed,
                                  int64_t position);

/// Draws and applies the choices; sets batch.images, mixed_labels and mix.
void mix_batch(Batch& batch, const ImageAugmentation& augmentation, uint64_t seed, int64_t position);

}  // namespace sdp
