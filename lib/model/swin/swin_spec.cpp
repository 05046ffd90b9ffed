#include "model/swin/swin_spec.h"

#include <algorithm>

#include "spec/value_text.h"

namespace sdp {
namespace {

constexpr size_t kMostStages = 6;

}  // namespace

void SwinSpec::resolve(std::string_view) {
  constexpr int64_t kImageNetPatch = 4;
  constexpr int64_t kImageNetWindow = 7;
  constexpr int64_t kHeadSize = 32;
  width = width.value_or(96);
  depths = depths.value_or(std::vector<int64_t>{2, 2, 6, 2});
  if (!num_heads) {
    num_heads.emplace();
    for (size_t stage = 0; stage < std::min(depths->size(), kMostStages); ++stage)
      num_heads->push_back(heads_of_width(*width, kHeadSize) << stage);
  }
  patch_size = patch_size.value_or(kImageNetPatch);
  window_size = window_size.value_or(kImageNetWindow);
  const bool is_imagenets = *patch_size == kImageNetPatch && *window_size == kImageNetWindow;
  image_size = image_size.value_or(is_imagenets ? kImageNetImageSize : kSmallImageSize);
}

void SwinSpec::check(const Positions& positions) const {
  if (depths->empty() || depths->size() > kMostStages)
    fail_at(positions.of("model.depths"), "model.depths",
            "found " + yaml_text(*depths) + ", expected the blocks of 1 to 6 stages");
  if (num_heads->size() != depths->size())
    fail_at(positions.of("model.num_heads"), "model.num_heads",
            "found " + yaml_text(*num_heads) +
                ", expected as many stages as model.depths has: " + yaml_text(*depths));
  for (size_t stage = 0; stage < depths->size(); ++stage)
    check_multiple(positions, "model.width", *width << stage, "model.num_heads", (*num_heads)[stage],
                   "all heads have the same size; in stage " + std::to_string(stage));
  check_multiple(positions, "model.image_size", *image_size, "model.patch_size", *patch_size,
                 "the image is divided into whole patches");
}

SwinSpec SwinSpec::tiny() {
  return {.width = 8,
          .num_heads = std::vector<int64_t>{4, 8, 16, 32},
          .image_size = 8,
          .patch_size = 2,
          .window_size = 2};
}

}  // namespace sdp
