#include "model/swin/swin_spec.h"

namespace sdp {

void SwinSpec::resolve(std::string_view) {
  constexpr int64_t kImageNetPatch = 4;
  constexpr int64_t kImageNetWindow = 7;
  constexpr int64_t kHeadSize = 32;
  width = width.value_or(96);
  heads = heads.value_or(heads_of_width(*width, kHeadSize));
  patch_size = patch_size.value_or(kImageNetPatch);
  window_size = window_size.value_or(kImageNetWindow);
  const bool is_imagenets = *patch_size == kImageNetPatch && *window_size == kImageNetWindow;
  image_size = image_size.value_or(is_imagenets ? kImageNetImageSize : kSmallImageSize);
}

void SwinSpec::check(const Positions& positions) const {
  check_multiple(positions, "model.width", *width, "model.heads", *heads, "all heads have the same size");
  check_multiple(positions, "model.image_size", *image_size, "model.patch_size", *patch_size,
                 "the image is divided into whole patches");
}

SwinSpec SwinSpec::tiny() {
  return {.width = 8, .heads = 4, .image_size = 8, .patch_size = 2, .window_size = 2};
}

}  // namespace sdp
