#include <array>
#include <vector>

#include "bench_data.h"
#include "data/augment.h"
#include "timer.h"

namespace sdp::bench {

void bench_cifar(double seconds) {
  constexpr ImageShape kShape{.channels = 3, .height = 32, .width = 32};
  constexpr int64_t kImages = 10'000;
  constexpr std::array kSteps = {Augmentation::kCrop, Augmentation::kFlip};
  const auto numel = static_cast<size_t>(kShape.numel());
  std::vector<uint8_t> pixels(kImages * numel);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(i * 2654435761U >> 13);

  const ImageTransform transform(kShape, {.mean = {0.5F, 0.5F, 0.5F}, .stddev = {0.25F, 0.25F, 0.25F}});
  std::vector<float> out(numel);
  int64_t position = 0;
  measure("crop, flip, normalize", kImages, seconds, [&] {
    for (size_t i = 0; i < kImages; ++i)
      transform.augment(std::span(pixels).subspan(i * numel, numel), kSteps, 1, position++, out);
  });
}

}  // namespace sdp::bench
