#pragma once

// Augmentation and normalization: from the pixels of an image to the network's input.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/sets/set_row.h"

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

}  // namespace sdp
