#pragma once

// From the pixels of an image to the network's input: augmentation and normalisation.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "spec/experiment_spec.h"

namespace sdp {

/// Turns uint8 [C, H, W] into float32 [C, H, W]. Thread-safe.
class ImageTransform {
 public:
  ImageTransform(ImageShape shape, const Normalization& normalization);

  /// (x / 255 - mean) / stddev, in float32 operations of this order.
  void normalize(std::span<const uint8_t> chw, std::span<float> out) const;

  /// First, if asked for, a crop of H x W at a random place of the image padded with 4 black pixels on each
  /// side; then a horizontal flip with probability 1/2; then normalize(). The choices are a function of
  /// (seed, position) alone, `position` being the sample's in the training order (sampler.h).
  void augment(std::span<const uint8_t> chw, std::span<const Augmentation> steps, uint64_t seed,
               int64_t position, std::span<float> out) const;

 private:
  /// out[c, y, x] = value of in[c, y + shift_y, x + shift_x], 0 outside the image; mirrored in x when `flip`.
  void shift_and_normalize(std::span<const uint8_t> chw, int64_t shift_y, int64_t shift_x, bool flip,
                           std::span<float> out) const;

  ImageShape shape_;
  std::vector<std::array<float, 256>> value_of_;  // [C]: the normalised value of every pixel value
};

}  // namespace sdp
