#include "model/resnet50/resnet50_spec.h"

namespace sdp {

void ResNet50Spec::resolve(std::string_view) {
  width = width.value_or(64);
  image_size = image_size.value_or(stem == Stem::kImageNet ? kImageNetImageSize : kSmallImageSize);
}

ResNet50Spec ResNet50Spec::tiny() {
  return {.width = 4, .image_size = 8};
}

}  // namespace sdp
