#include "model/stem.h"

#include "model/layout_builder.h"

namespace sdp {

int64_t add_stem(LayoutBuilder& builder, Stem stem, int64_t width, int64_t image_size,
                 int64_t image_channels) {
  const bool imagenet = stem == Stem::kImageNet;
  const int64_t size = imagenet ? (image_size + 1) / 2 : image_size;
  builder.convolution("conv1", image_channels, width, imagenet ? 7 : 3, {});
  builder.batch_norm("bn1", width, {});
  return imagenet ? (size + 1) / 2 : size;  // max-pooling
}

}  // namespace sdp
