#pragma once

// Mixing the images of a batch with each other:
//
// - mixup: Zhang, Cisse, Dauphin, Lopez-Paz, "mixup: Beyond Empirical Risk Minimization" (ICLR 2018).
// - CutMix: Yun, Han, Oh, Chun, Choe, Yoo, "CutMix: Regularization Strategy to Train Strong Classifiers with
//   Localizable Features" (ICCV 2019).
//
// Formulas and pairs are those of torchvision.transforms.v2: sample b is mixed with sample b - 1, the first
// with the last, and the share of the first is one number for the whole batch. Where both are on, each is
// used for half of the batches (RandomChoice in torchvision's training recipe).

#include <cstdint>
#include <optional>

#include "data/box.h"
#include "data/dataset.h"

namespace sdp {

/// How one batch is mixed.
struct Mixing {
  double share = 1;             ///< of the sample itself, the rest is its partner's
  std::optional<Box> box = {};  ///< CutMix: where the partner is seen; none: mixup
};

/// The choices for the batch whose first sample is at `position` of the training order, a function of (seed,
/// position) alone; none where both are off. The share is drawn from Beta(alpha, alpha); in CutMix the box
/// has the share 1 - lambda of the image's area around a uniform centre, is cut off at the border, and the
/// share is what remains outside of it.
std::optional<Mixing> draw_mixing(const ImageAugmentation& augmentation, ImageShape shape, uint64_t seed,
                                  int64_t position);

/// Draws and applies: batch.images, mixed_labels and mix.
void mix_batch(Batch& batch, const ImageAugmentation& augmentation, uint64_t seed, int64_t position);

}  // namespace sdp
