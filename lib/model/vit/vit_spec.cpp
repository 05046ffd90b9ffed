#include "model/vit/vit_spec.h"

#include <algorithm>

namespace sdp {
namespace {

struct VitSize {
  std::string_view name;
  int64_t depth, width, heads, patch;
};

constexpr auto kSizes = std::to_array<VitSize>({
    {"vit_s_16", 12, 384, 6, 16},
    {"vit_b_16", 12, 768, 12, 16},
    {"vit_b_32", 12, 768, 12, 32},
    {"vit_l_16", 24, 1024, 16, 16},
});

}  // namespace

void VitSpec::resolve(std::string_view name) {
  const VitSize& size =
      *std::find_if(kSizes.begin(), kSizes.end(), [&](const VitSize& s) { return s.name == name; });
  depth = depth.value_or(size.depth);
  width = width.value_or(size.width);
  hidden_width = hidden_width.value_or(4 * *width);
  heads = heads.value_or(heads_of_width(*width, size.width / size.heads));
  patch_size = patch_size.value_or(size.patch);
  image_size = image_size.value_or(*patch_size % 16 == 0 ? kImageNetImageSize : kSmallImageSize);
}

void VitSpec::check(const Positions& positions) const {
  check_multiple(positions, "model.width", *width, "model.heads", *heads, "all heads have the same size");
  check_multiple(positions, "model.image_size", *image_size, "model.patch_size", *patch_size,
                 "the image is divided into whole patches");
}

VitSpec VitSpec::tiny() {
  return {.width = 16, .depth = 2, .heads = 4, .image_size = 8, .patch_size = 2};
}

}  // namespace sdp
