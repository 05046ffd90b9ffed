#pragma once

// Mixing the images of a batch with each other:
//
// - mixup: Zhang, Cisse, Dauphin, Lopez-Paz, "mixup: Beyond Empirical Risk Minimization" (ICLR 2018).
// - CutMix: Yun, Han, Oh, Chun, Choe, Yoo, "CutMix: Regularization Strategy to Train Strong Classifiers with
//   Localizable Features" (ICCV 2019).
//
// Formulas and pairs are those of torchvision.transforms.v2: sample b is mixed with sample b - 1, the first
// with the last, with the same share for the whole batch. If both are on, each is used for half of the
// batches (RandomChoice in torchvision's training recipe).

#include <cstdint>
#include <optional>

#include "data/box.h"
#include "data/dataset.h"

namespace sdp {

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
