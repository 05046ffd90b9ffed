#include "model/resnet/resnet_spec.h"

namespace sdp {

void ResNetSpec::resolve(std::string_view name) {
  width = width.value_or(64);
  width_multiplier = width_multiplier.value_or(name == "wide_resnet18" ? 2 : 1);
  image_size = image_size.value_or(stem == Stem::kImageNet ? kImageNetImageSize : kSmallImageSize);
}

void ResNetSpec::check(const Positions& positions) const {
  if (*width * *width_multiplier > static_cast<int64_t>(kMostWidth))
    fail_at(positions.of("model.width"), "model.width",
            "found width " + std::to_string(*width) + " and width_multiplier " +
                std::to_string(*width_multiplier) + ", expected a product of at most " +
                std::to_string(static_cast<int64_t>(kMostWidth)));
}

ResNetSpec ResNetSpec::tiny() {
  return {.width = 8, .image_size = 8};
}

}  // namespace sdp
