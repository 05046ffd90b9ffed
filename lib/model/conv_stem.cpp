#include "model/conv_stem.h"

#include <ATen/ATen.h>

#include "model/conv.h"

namespace sdp {

void ConvStem::bind(const TensorSource& source) {
  conv1_ = source.parameter("conv1.weight");
  bn1_ = BatchNorm::bind(source, "bn1");
}

at::Tensor ConvStem::forward(const at::Tensor& images, const ForwardMode& mode, bool is_kept) const {
  const bool imagenet = stem_ == Stem::kImageNet;
  const at::Tensor x = bn1_.forward(conv2d(images, conv1_, imagenet ? 2 : 1, imagenet ? 3 : 1), mode);
  if (imagenet) return at::max_pool2d(x.relu_(), {3, 3}, {2, 2}, {1, 1});
  return is_kept ? x.relu_() : relu_keeping_bits(x);
}

}  // namespace sdp
