#pragma once

// The first layers of torchvision's ResNets: conv1, bn1, ReLU and, for ImageNet, max-pooling. This header
// does not need LibTorch; the forward pass is in model/conv_stem.h.

#include <cstdint>

#include "spec/field.h"

namespace sdp {

class LayoutBuilder;

/// kCifar: 3x3 convolution. kImageNet: 7x7 convolution with stride 2, then max-pooling.
enum class Stem { kCifar, kImageNet };
SDP_ENUM_NAMES(Stem, {Stem::kCifar, "cifar"}, {Stem::kImageNet, "imagenet"})

/// Adds the stem's layers for images [image_channels, image_size, image_size]. Returns the height and width S
/// of their output [width, S, S].
int64_t add_stem(LayoutBuilder& builder, Stem stem, int64_t width, int64_t image_size,
                 int64_t image_channels);

}  // namespace sdp
