#include "model/mlp/mlp_spec.h"

namespace sdp {

void MlpSpec::resolve(std::string_view) {
  width = width.value_or(64);
  depth = depth.value_or(4);
  hidden_width = hidden_width.value_or(256);
  image_size = image_size.value_or(kSmallImageSize);
}

void MlpSpec::check(const Positions&) const {}

MlpSpec MlpSpec::tiny() {
  return {.width = 8, .hidden_width = 24, .image_size = 8};
}

}  // namespace sdp
