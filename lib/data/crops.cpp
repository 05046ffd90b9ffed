#include "data/crops.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "data/random.h"

namespace sdp {

namespace {

constexpr double kLeastArea = 0.08;
constexpr double kLeastRatio = 3.0 / 4;
constexpr double kLargestRatio = 4.0 / 3;
constexpr int kTries = 10;

/// Python's round(): halfway cases round to even.
int64_t rounded(double value) {
  return static_cast<int64_t>(std::nearbyint(value));
}

Box box_at(int64_t left, int64_t top, int64_t width, int64_t height) {
  return {.left = left, .top = top, .right = left + width, .bottom = top + height};
}

Box largest_centered(int64_t width, int64_t height) {
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t box_width = width;
  int64_t box_height = height;
  if (ratio < kLeastRatio)
    box_height = rounded(static_cast<double>(width) / kLeastRatio);
  else if (ratio > kLargestRatio)
    box_width = rounded(static_cast<double>(height) * kLargestRatio);
  return box_at((width - box_width) / 2, (height - box_height) / 2, box_width, box_height);
}

/// The whole pixels of begin..end, extended by `reach` on both sides, of an image with `length` pixels.
std::pair<int64_t, int64_t> pixels_of(double begin, double end, double reach, int64_t length) {
  return {std::max<int64_t>(static_cast<int64_t>(std::floor(begin - reach)), 0),
          std::min(static_cast<int64_t>(std::ceil(end + reach)), length)};
}

}  // namespace

Box random_resized_crop(int64_t width, int64_t height, uint64_t seed, int64_t position) {
  CounterRandom random(seed, RandomPurpose::kResizedCrop, static_cast<uint64_t>(position));
  const auto area = static_cast<double>(width * height);
  const double least_log = std::log(kLeastRatio);
  const double largest_log = std::log(kLargestRatio);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double target = area * (kLeastArea + (1 - kLeastArea) * random.uniform());
    const double ratio = std::exp(least_log + (largest_log - least_log) * random.uniform());
    const int64_t box_width = rounded(std::sqrt(target * ratio));
    const int64_t box_height = rounded(std::sqrt(target / ratio));
    if (box_width < 1 || box_width > width || box_height < 1 || box_height > height) continue;
    const auto top = static_cast<int64_t>(random.below(static_cast<uint64_t>(height - box_height + 1)));
    const auto left = static_cast<int64_t>(random.below(static_cast<uint64_t>(width - box_width + 1)));
    return box_at(left, top, box_width, box_height);
  }
  return largest_centered(width, height);
}

Crop crop_of(const Box& box) {
  return {.pixels = box,
          .window = {.left = static_cast<double>(box.left),
                     .top = static_cast<double>(box.top),
                     .right = static_cast<double>(box.right),
                     .bottom = static_cast<double>(box.bottom)}};
}

Crop center_crop(int64_t width, int64_t height, int64_t resize, int64_t size) {
  if (width < 1 || height < 1 || size < 1 || size > resize)
    throw std::logic_error("center_crop: a crop larger than what it is cut from");
  const int64_t shorter = std::min(width, height);
  const auto window_of = [&](int64_t length) {
    const int64_t resized = resize * length / shorter;
    const int64_t offset = rounded(static_cast<double>(resized - size) / 2);
    const double scale = static_cast<double>(length) / static_cast<double>(resized);
    // Rounding of a product may exceed the image.
    return std::pair(static_cast<double>(offset) * scale,
                     std::min(static_cast<double>(offset + size) * scale, static_cast<double>(length)));
  };
  const auto [left, right] = window_of(width);
  const auto [top, bottom] = window_of(height);
  const auto [first_x, end_x] = pixels_of(left, right, resize_reach(right - left, size), width);
  const auto [first_y, end_y] = pixels_of(top, bottom, resize_reach(bottom - top, size), height);
  return {.pixels = {.left = first_x, .top = first_y, .right = end_x, .bottom = end_y},
          .window = {.left = left, .top = top, .right = right, .bottom = bottom}};
}

int eighths_for(const Crop& crop, int64_t size) {
  const double shorter = std::min(crop.window.right - crop.window.left, crop.window.bottom - crop.window.top);
  for (const int eighths : {1, 2, 4})
    if (shorter * eighths >= static_cast<double>(8 * size)) return eighths;
  return 8;
}

void decode_crop(EncodedImage& image, const Crop& crop, int eighths, int64_t size, std::span<uint8_t> chw) {
  const auto scaled = [eighths](int64_t begin, int64_t end, int64_t length) {
    return std::pair(begin * eighths / 8,
                     std::min(scaled_length(end, eighths), scaled_length(length, eighths)));
  };
  const auto [left, right] = scaled(crop.pixels.left, crop.pixels.right, image.width());
  const auto [top, bottom] = scaled(crop.pixels.top, crop.pixels.bottom, image.height());
  const Pixels pixels = image.decode({.left = left, .top = top, .right = right, .bottom = bottom}, eighths);
  const double scale = eighths / 8.0;
  resize_bilinear(pixels,
                  {.left = crop.window.left * scale - static_cast<double>(left),
                   .top = crop.window.top * scale - static_cast<double>(top),
                   .right = crop.window.right * scale - static_cast<double>(left),
                   .bottom = crop.window.bottom * scale - static_cast<double>(top)},
                  size, chw);
}

}  // namespace sdp
