#include "model/stem.h"

#include "model/layout_builder.h"

namespace sdp {

int64_t add_stem(LayoutBuilder& builder, Stem stem, int64_t width, int64_t image_size,
                 int64_t image_channels) {
  const bool imagenet = stem == Stem::kImageNet;
  int64_t size = imagenet ? (image_size + 1) / 2 : image_size;
  builder.convolution("conv1", image_channels, width, imagenet ? 7 : 3, imagenet ? 2 : 1, size * size, {},
                      /*first=*/true);
  builder.batch_norm("bn1", width, size * size, {});
  builder.operation({.kind = OperationKind::kRelu, .rows = size * size, .in = width}, {});
  // The images and bn1's input.
  builder.saved().elements +=
      static_cast<double>(image_channels * image_size * image_size + width * size * size);
  if (!imagenet) return size;
  builder.saved().elements += static_cast<double>(width * size * size);  // the input of max-pooling
  builder.operation({.kind = OperationKind::kMaxPool, .rows = size * size, .in = width}, {});
  size = (size + 1) / 2;
  builder.saved().bytes += 8.0 * static_cast<double>(width * size * size);  // and its indices, int64
  return size;
}

}  // namespace sdp
