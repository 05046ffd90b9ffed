#pragma once

// Where the models of torchvision's ResNet begin: conv1, bn1, ReLU and, on ImageNet, max-pooling. This header
// needs no LibTorch; the forward pass is in model/conv_stem.h.

#include <cstdint>

#include "spec/field.h"

namespace sdp {

class LayoutBuilder;

/// 3x3 convolution, or 7x7 of stride 2 and max-pooling.
enum class Stem { kCifar, kImageNet };
SDP_ENUM_NAMES(Stem, {Stem::kCifar, "cifar"}, {Stem::kImageNet, "imagenet"})

/// Adds the stem's layers and what they save. Returns height and width of the map [width, S, S] behind them.
int64_t add_stem(LayoutBuilder& builder, Stem stem, int64_t width, int64_t image_size);

}  // namespace sdp
