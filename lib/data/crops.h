#pragma once

// The part of an image that the network sees: torchvision's RandomResizedCrop for training, its Resize and
// CenterCrop for evaluation.

#include <cstdint>
#include <span>

#include "formats/image.h"
#include "formats/resize.h"

namespace sdp {

/// Pixels of an image, and the window of them that is resized to the network's square input. Resizing also
/// reads the pixels around the window.
struct Crop {
  Box pixels;
  Window window;  ///< in pixels of the image
};

/// torchvision.transforms.RandomResizedCrop: area 0.08..1 of the image, ratio of width to height 3/4..4/3,
/// uniform in its logarithm. If ten tries do not fit into the image, the largest centered box with an allowed
/// ratio. A function of (seed, position) and the image's size only; `position` is the sample's position in
/// the training order (sampler.h).
Box random_resized_crop(int64_t width, int64_t height, uint64_t seed, int64_t position);

/// Resizing reads only the box, like torchvision's, which crops before it resizes.
Crop crop_of(const Box& box);

/// Resize of the shorter side to `resize` pixels, then CenterCrop of size x size, 1 <= size <= resize. Only
/// the cropped part of the image is resized.
Crop center_crop(int64_t width, int64_t height, int64_t resize, int64_t size);

/// The smallest of 1, 2, 4 and 8 eighths (image.h) at which the crop still has `size` pixels in both
/// directions; 8 if none has. libjpeg-turbo has fast code for these only: 5, 6 or 7 eighths take longer than
/// 8.
int eighths_for(const Crop& crop, int64_t size);

/// Decodes a crop at a scale of eighths / 8 and resizes it to [3, size, size].
void decode_crop(EncodedImage& image, const Crop& crop, int eighths, int64_t size, std::span<uint8_t> chw);

}  // namespace sdp
