#pragma once

// The layers of torchvision's ResNets: the stem (conv1, bn1, ReLU and, for ImageNet, max-pooling), four
// stages of residual blocks, and the head. This header does not need LibTorch; the forward pass is in
// model/residual_net.h.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "spec/field.h"
#include "subnet/layout.h"

namespace sdp {

class LayoutBuilder;

/// kCifar: 3x3 convolution. kImageNet: 7x7 convolution with stride 2, then max-pooling.
enum class Stem { kCifar, kImageNet };
SDP_ENUM_NAMES(Stem, {Stem::kCifar, "cifar"}, {Stem::kImageNet, "imagenet"})

inline constexpr const char* kStemDoc =
    "first layers: 3x3 convolution (cifar), or 7x7 convolution with stride 2, then max-pooling (imagenet)";
inline constexpr const char* kResNetImageSizeDoc =
    "height and width of the input images; unset: 224 with stem imagenet, otherwise 32";

/// A block relu(P(x) + branch(x)).
struct ResidualBlock {
  std::string name;  ///< as in torchvision: "layer1.0"
  int64_t stride = 1;
  int64_t in = 0, width = 0, out = 0;  ///< channels of its input, inside its branch and of its output

  /// P is a 1x1 convolution with BatchNorm; otherwise P(x) is x.
  bool has_projection() const { return stride != 1 || in != out; }
};

/// The blocks of all stages. The stages have 1, 2, 4 and 8 times `width` channels inside their blocks, and
/// `expansion` times as many between blocks. The first blocks of the second to fourth stage have stride 2.
std::vector<ResidualBlock> residual_blocks(const std::array<int, 4>& blocks_per_stage, int64_t width,
                                           int64_t expansion = 1);

struct ResidualImages {
  Stem stem;
  int64_t size, channels, num_classes;
};

/// `add_branch(builder, block, branch)` adds the layers of a block's branch, whose hidden width is
/// block.width.
ModelLayout residual_layout(
    const ResidualImages& images, const std::vector<ResidualBlock>& blocks,
    const std::function<void(LayoutBuilder& builder, const ResidualBlock& block, int branch)>& add_branch);

}  // namespace sdp
