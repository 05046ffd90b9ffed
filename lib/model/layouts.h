#pragma once

#include "spec/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Layout of the model the spec names, with `image_size` resolved. Torch-free.
ModelLayout layout_of(const ModelSpec& spec);

/// ResNet-18 (He et al. 2016) with torchvision's names: torchvision.models.resnet18. Stages have width, 2, 4
/// and 8 times width channels. Stem cifar: 3x3 convolution, stride 1, no pooling.
ModelLayout resnet18_layout(const ModelSpec& spec);

/// Pre-norm residual MLP on the flattened image: x <- x + W2 relu(W1 norm(x)); names of a branch's layers as
/// in torchvision.ops.MLP.
ModelLayout mlp_layout(const ModelSpec& spec);

}  // namespace sdp
